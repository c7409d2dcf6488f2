"""Code as spans with the CSS classes of Pygments, never as HTML."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

_MAX_CHARS = 64 * 1024
_NAMES = {"py": "python", "python3": "python", "sh": "bash", "shell": "bash", "js": "javascript"}
_LANGUAGES = frozenset({"python", "bash", "javascript", "json", "sql", "r", "diff"})
"""Lexers that are used: those of all languages take long to look up, and the name of a language is untrusted."""


def spans_of(code: str, language: str) -> list[list[str]] | None:
    """Return the pieces of code with their classes, `[[class, text], …]`, whose texts together are the code.

    Args:
        code: The code.
        language: Its language.

    Returns:
        None if the code is too long, or its language is not known.
    """
    name = _NAMES.get(language.lower(), language.lower())
    if name not in _LANGUAGES or len(code) > _MAX_CHARS:
        return None
    standard = import_module("pygments.token").STANDARD_TYPES  # only when something is shown

    spans: list[list[str]] = []
    for kind, text in _lexer(name).get_tokens(code):
        css = standard.get(kind, "")
        if css == "w":
            css = ""
        if spans and spans[-1][0] == css:
            spans[-1][1] += text
        else:
            spans.append([css, text])
    return spans if "".join(text for _, text in spans) == code else None


@cache
def _lexer(name: str) -> Any:
    return import_module("pygments.lexers").get_lexer_by_name(name, stripnl=False, ensurenl=False)
