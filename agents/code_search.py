"""Finds the code to run in messages, and says of other code in them why it is not run."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.extraction import (
    DOCUMENT_LABELS,
    OUTPUT_LABELS,
    ExtractedBlock,
    extract_code_blocks,
    normalise_language,
    without_thoughts,
)
from autogen_codeact.agents.observation import INTERRUPTED
from autogen_codeact.agents.text import shorten

Reason = Literal["language", "unlabelled", "unfenced", "transcript", "untagged", "truncated", "answer"]

_DATA = """
bib bibtex cfg conf css csv diff dot dotenv env graphviz html ini json json5 jsonc jsonl latex math mermaid ndjson
patch properties svg table tex toml tree tsv xml yaml yml
"""
DATA_LABELS = frozenset(_DATA.split())
"""Labels (normalised) of blocks of data or markup: nothing in them is code to run."""

TRANSCRIPT_LABELS = frozenset(("pycon", "python-console", "python-repl", "doctest", "ipython-console", "irb"))
"""Labels (normalised) of recorded sessions: code with prompts, between its outputs."""

TERMINAL_LABELS = frozenset(("console", "shell-session", "shellsession", "terminal"))
"""Labels (normalised) that models use for commands and for output; prompts tell them apart."""

CUT_OFF = (
    "Your answer ended inside a code block, so none of it was run. Send the code again, whole; "
    "if it is long, in a shorter form."
)
IN_MESSAGE = "Code in your message was not run:"
ANSWER_NOT_RUN = "If it is your answer, send the message again; if it should run, send it so that it can."
SAME_CODE = (
    "This code was run already and gave the same. Don't send it again: send other code, or give the answer in words."
)
SAME_AGAIN = "The code was sent a third time although it gives nothing new, so it was not run."
WAITS_S = 1.0
COULD_RUN: frozenset[Reason] = frozenset(("answer", "truncated", "unfenced", "untagged"))
"""Reasons of code that would have been run in another place or form."""
MAX_NAMED = 10
MAX_LABEL_CHARS = 40
MAX_LOOKED_AT_CHARS = 10_000

_OTHER_FORM = re.compile(
    r"^[ \t]*(?:>>> \S|<(?:code|python)>|<(?:code|llm-code|python|tool_code|pre)(?: [^<>\n]{0,99})?>[ \t]*$"
    r"|<tool_call>|<function=)"
    r"|`{3,}(?:python3?|py|bash|sh|shell) [^`\n]+`{3,}|^[ \t]*>[ \t>]*`{3,}(?:python3?|py|bash|sh|shell)[ \t]*$"
    r"|^[ \t]*\{\"(?:name|tool|action)\": ?\"[\w.-]{1,64}\", ?\"(?:arguments|parameters|args|input|action_input)\": ?[{\"]"
    r"|<\|python_tag\|>|(?-i:\[(?:PYTHON|CODE)\])(?=[ \t]*$|.*\[/)|<code>[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_LABEL = re.compile(r"(?:python3?|py)\s+", re.IGNORECASE)
_PARAGRAPHS = re.compile(r"\n[ \t]*\n|:[ \t]*\n")
_PRINTS = re.compile(r"^[ \t]*print\(", re.MULTILINE)
_STATEMENTS = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.For,
    ast.While,
    ast.If,
    ast.With,
    ast.Try,
)
_PROMPT = re.compile(r"^[ \t]*(?:>>>|In \[\d+\]:|[\w.~/@:-]{0,40}[$%]) \S", re.MULTILINE)
_COMMANDS = (
    "apt|apt-get|awk|bash|cat|cd|chmod|cp|curl|docker|echo|export|git|grep|head|ls|mkdir|mv|node|npm|npx|pip|pip3|"
    "python|python3|rm|sed|sh|source|sudo|tail|tar|touch|unzip|wget"
)
_CODE = re.compile(
    rf"""^[ \t]*(?:
        \#!/                                                        # a script
        | import[ ]\w[\w.]*(?:,|[ ]as[ ]|[ \t]*$)
        | from[ ][\w.]+[ ]import[ ]
        | (?:async[ ])?(?:def|function|func|fn)[ ]\w+[ ]?\(
        | class[ ]\w+[^\n]{{0,200}}[:{{][ \t]*$
        | (?:for|while|if|elif|else|try|with|except|finally)\b[^\n]{{0,200}}[:{{][ \t]*$
        | (?:await[ ])?[a-z_]\w{{0,60}}(?:\.\w{{1,60}}){{0,6}}\([^\n]{{0,400}}[ \t;)\]]$ # a call
        | [a-z_]\w{{0,60}}[ ]=[ ][^\n=]{{0,400}}[(\[{{]              # a value that is computed
        | (?:const|let|var)[ ]\w+[ ]?=
        | [%!]\w+[ ]
        | (?:{_COMMANDS})[ ][\w"'./~$-]
        | (?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH)[ ][^\n]{{0,400}}
    )""",
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True)
class NotRun:
    """A block of code that was not run."""

    language: str  # normalised; "" without a label
    reason: Reason
    code: str


def why_not_run(block: ExtractedBlock, languages: Collection[str], *, tags_only: bool = False) -> Reason | None:
    if block.language in languages:
        if not block.complete:
            return "truncated"
        return None if block.tagged or not tags_only else "untagged"
    reason = _why_not_code_here(block)
    return "truncated" if reason is not None and reason != "transcript" and not block.complete else reason


def _why_not_code_here(block: ExtractedBlock) -> Reason | None:
    label = block.language
    if label in TRANSCRIPT_LABELS or (label in TERMINAL_LABELS and _PROMPT.search(block.code[:MAX_LOOKED_AT_CHARS])):
        return "transcript"
    if label in TERMINAL_LABELS:
        return "language" if looks_like_code(block.code) else None
    if label in OUTPUT_LABELS | DOCUMENT_LABELS | DATA_LABELS:
        return None
    if label:
        return "language"
    return "unlabelled" if looks_like_code(block.code) else None


def looks_like_code(text: str) -> bool:
    """Return whether text without a label is probably code, and not output, a table or a drawing."""
    looked_at = text[:MAX_LOOKED_AT_CHARS]
    return _CODE.search(looked_at) is not None or _PROMPT.search(looked_at) is not None


def as_metadata(blocks: Sequence[NotRun]) -> dict[str, str]:
    """Return the metadata `not_run` of a message: a JSON list of languages and reasons. Empty if there are none."""
    if not blocks:
        return {}
    named = [{"language": shorten(each.language, MAX_LABEL_CHARS), "reason": each.reason} for each in blocks]
    return {"not_run": json.dumps(named[:MAX_NAMED])}


def describe_not_run(blocks: Sequence[NotRun], languages: Iterable[str], head: str = IN_MESSAGE) -> str:
    """Name blocks to the model, with the reason and what to change."""
    run = listed(languages)
    lines = dict.fromkeys(f"- {_named(each)}: {_WHY[each.reason].format(run=run)}" for each in blocks)
    shown = [*lines][:MAX_NAMED]
    return "\n".join([head, *shown])


def listed(languages: Iterable[str]) -> str:
    """Return languages as a phrase, such as "bash, python or sh"."""
    *others, last = sorted(languages)
    return f"{', '.join(others)} or {last}" if others else last


def _named(block: NotRun) -> str:
    label = "".join(char if char.isprintable() else "?" for char in block.language)
    if block.reason == "unfenced":
        return "code that is not in a fenced block"
    return f"a block labelled {shorten(label, MAX_LABEL_CHARS)}" if label else "a block without a label"


_WHY: dict[Reason, str] = {
    "unlabelled": "label code that should run as {run}",
    "unfenced": "to have code run, write it between a line with ``` and its language, {run}, and a line with ```",
    "transcript": "it has prompts and outputs in it; send the code alone, labelled {run}",
    "untagged": "only code between <execute> and </execute> is run",
    "truncated": "it is not closed, so it may be incomplete",
    "answer": "an answer is not run",
    "language": "only {run} is run here",
}


@dataclass
class NotRunNotes:
    """The blocks that were reported to the model in one turn; a block is reported once."""

    _named: set[NotRun] = field(default_factory=set)
    _just_named: bool = False

    def unreported(self, blocks: Sequence[NotRun], *, ran: bool) -> list[NotRun]:
        """Return the blocks of a message that are still to be reported; `ran` says whether it ran other code.

        A message that ran nothing is the answer if the message before it had such a block, and the model was warned.
        """
        if not ran and self._just_named:
            return []
        new = [block for block in blocks if block not in self._named]
        self._named.update(new)
        self._just_named = bool(new)
        return new


@dataclass
class RepeatedCode:
    """Notices, during one turn, that the model sends the same code again, as models do that are stuck."""

    reported: list[CodeBlock] | None = None
    """The code of the last step, if the model was just warned that it gives nothing new: if it comes again, it is not run."""
    stuck = False
    """Whether it came again after that."""
    _last: tuple[list[CodeBlock], int, str] | None = None

    def remarks(self, blocks: list[CodeBlock], result: CodeResult) -> list[str]:
        """Return the warning for the model if the code had the same result in the step before.

        Code that calls host tools, shows figures, makes files or waits may run again and again: not all is in the output. So may
        code that the end of its process has interrupted.
        """
        now = (blocks, result.exit_code, result.output)
        unseen = any(getattr(result, name, ()) for name in ("tool_calls", "displays", "artifacts"))
        error = getattr(result, "error", None)
        waits = (
            unseen
            or (error is not None and error.type == INTERRUPTED)
            or (result.exit_code == 0 and getattr(result, "duration_s", 0) >= WAITS_S)
        )
        self.reported = blocks if now == self._last and not waits else None
        self._last = now
        return [SAME_CODE] if self.reported else []


@dataclass(frozen=True)
class FoundCode:
    """The code in some messages: the blocks to run, and those that are not run."""

    blocks: list[CodeBlock]
    cut_off: bool
    """Whether there is nothing to run because a block was never closed."""
    not_run: tuple[NotRun, ...] = ()
    end: int | None = None
    """Where the last block ends that is run or named to the model, if one is run. Line endings count as one character."""


def runnable_languages(labels: Iterable[str]) -> frozenset[str]:
    """Return the languages of some labels, without those of output."""
    return frozenset(map(normalise_language, labels)) - OUTPUT_LABELS - {""}


def find_code(texts: Sequence[str], languages: Collection[str], *, tags_only: bool = False) -> FoundCode:
    """Find the code to run in messages."""
    found = [block for text in texts for block in extract_code_blocks(text)]
    runnable = [block for block in found if block.language in languages and (block.tagged or not tags_only)]
    # Where one block is cut off none is run: blocks of an answer build on each other.
    whole = all(block.complete for block in runnable)
    blocks = [CodeBlock(code=block.code, language=block.language) for block in runnable] if whole else []
    reasons = [(block, why_not_run(block, languages, tags_only=tags_only)) for block in found]
    not_run = tuple(NotRun(block.language, reason, block.code) for block, reason in reasons if reason is not None)
    if not found:
        not_run = tuple(NotRun("", "unfenced", code) for code in map(unfenced_code, texts) if code)
    end = max(block.end for block, reason in reasons if reason is not None or block in runnable) if blocks else None
    return FoundCode(blocks, not blocks and any(map(_is_cut_off, found)), not_run, end)


def unfenced_code(text: str) -> str:
    """Return code in a message without fences, or "".

    That is Python alone or in half a fence, a paragraph of it that prints, or code in other tags or with prompts. It is never
    run, because nothing says where it begins and ends.
    """
    looked_at = without_thoughts(text)[:MAX_LOOKED_AT_CHARS].strip()
    inside = looked_at.strip("`'\"")
    label = _LABEL.match(inside)
    if _OTHER_FORM.search(looked_at) or _is_python(inside[label.end() :] if label else inside):
        return looked_at
    printing = filter(_PRINTS.search, _PARAGRAPHS.split(looked_at))
    return next(filter(_is_python, printing), "")


def _is_python(text: str) -> bool:
    """Return whether a text is Python that does something: statements, calls, imports."""
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, _STATEMENTS) or isinstance(getattr(node, "value", None), ast.Call) for node in body)


def code_in_answer(text: str, languages: Collection[str], ran: Collection[str] = ()) -> tuple[NotRun, ...]:
    """Find the code in a message that is an answer, of which nothing is run."""
    known = {code.strip() for code in ran}
    blocks = extract_code_blocks(text)
    unfenced = "" if blocks else unfenced_code(text)
    found = [NotRun("", "unfenced", unfenced)] if unfenced else []
    for block in blocks:
        reason = why_not_run(block, languages)
        if reason is None and block.language in languages:
            reason = "answer"
        if reason is not None and block.code.strip() not in known:
            found.append(NotRun(block.language, reason, block.code))
    return tuple(found)


def is_cut_off(text: str) -> bool:
    """Return whether a message ended inside a block."""
    return any(map(_is_cut_off, extract_code_blocks(text)))


def _is_cut_off(block: ExtractedBlock) -> bool:
    """Return whether a block was never closed. A line of tildes may be an underline instead of a fence."""
    return not block.complete and (bool(block.language) or block.fence != "~" or looks_like_code(block.code))
