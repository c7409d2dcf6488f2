"""Markdown of models as tokens, as long as that is little work; whoever shows it then shows the text as it is."""

from __future__ import annotations

from itertools import count

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

MAX_CHARS = 20_000
MAX_NESTING = 16
"""Levels of quotes and lists; the parser drops what is below 20."""


class _TooMuchError(Exception):
    """The text takes more steps than it may."""


def markdown_tokens(parser: MarkdownIt, text: str, most: int) -> list[Token] | None:
    """Return the tokens of a text; None if it is too long, too deep, or made to take long."""
    if len(text) > MAX_CHARS or 3 * _cells(text) > most:
        return None
    steps = count()

    def step(state: StateBlock | StateInline, *_: object) -> bool:
        if next(steps) >= most or len(state.tokens) > most or state.level > MAX_NESTING:
            raise _TooMuchError
        return False

    parser.block.ruler.before("table", "step", step, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("text", "step", step)
    try:
        tokens = parser.parse(text)
    except _TooMuchError:
        return None
    return tokens if sum(1 + len(token.children or ()) for token in tokens) <= most else None


def _cells(text: str) -> int:
    """Return how many cells tables can have: the parser gives each row as many as its table has columns."""
    parts = (part.split("\n") for part in text.split("\n\n"))
    return sum(len(lines) * max(line.count("|") for line in lines) for lines in parts)
