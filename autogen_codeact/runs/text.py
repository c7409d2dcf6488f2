"""Text of models, code and tools as pages and exports have it: bounded, and without what hides or reorders it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from autogen_codeact.agents.extraction import extract_code_blocks
from codeact_sandbox.types.filenames import printable, printable_text
from codeact_sandbox.types.protected_names import protected_name
from codeact_sandbox.types.text import apply_carriage_returns

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_MARKS = re.compile(r"\*\*|`|^#{1,6} ", re.MULTILINE)
_FENCE_LINE = re.compile(r"^```.*$", re.MULTILINE)
_FENCE = re.compile(r"[\s>*+\d.)-]*(`{3,}|~{3,})")
TITLE_CHARS = 120
VALUE_CHARS = 8_000
"""Characters of an argument, a result or an error that a document has."""


def visible(text: str) -> str:
    """Return text with control, bidi and other invisible characters as escapes; colours are removed."""
    return printable_text(_COLOURS.sub("", text.replace("\r\n", "\n")))


def shortened(text: str, limit: int) -> tuple[str, int | None]:
    """Return text with at most about `limit` characters, and its size in bytes if it was longer."""
    if len(text) <= limit:
        return visible(text), None
    half = limit // 2
    left_out = f"\n[… {len(text) - 2 * half:,} characters left out …]\n"
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"{visible(text[:half])}{left_out}{visible(text[-half:])}", size


def bounded(text: str, limit: int = VALUE_CHARS) -> str:
    """Return the beginning of a text that is too long, and say so."""
    return visible(text) if len(text) <= limit else f"{visible(text[:limit])}…"


def terminal_text(text: str) -> str:
    """Return output as a user would finally see it in a terminal."""
    return apply_carriage_returns(_COLOURS.sub("", text))


def title(text: str) -> str:
    """Return the first words of a text in one line of at most 120 characters."""
    line = " ".join(visible(text[: 4 * TITLE_CHARS]).split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1].rstrip()}…"


def download_name(name: str) -> str:
    """Return the last part of a file's name without characters that hide or reorder it, and never a protected name."""
    shown = "".join(c for c in name[-200:].rpartition("/")[2] if printable(c) == c).lstrip(".")
    return f"file-{shown}" if protected_name(shown) else shown


def model_name(name: str) -> str | None:
    """Return the name of a model as a user knows it; None for a private class."""
    if name in ("RecordedModel", "ReplayChatCompletionClient"):
        return "recorded answers"
    return bounded(name, 200) if not name.startswith("_") else None


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON text of limited length."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, indent=indent)
        return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
    except (ValueError, RecursionError):
        return "[a value that is nested too deeply]"


def seconds(value: object) -> float:
    """Return a number of seconds from a log as a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return round(number, 6) if math.isfinite(number) and 0 <= number < 1e12 else 0.0


def count(value: object) -> int:
    """Return a number of things from a log; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def words(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, list) and all(
        isinstance(each, str) or (isinstance(each, dict) and "data" in each) for each in content
    ):
        return "\n".join(each if isinstance(each, str) else "[image]" for each in content)
    return content if isinstance(content, str) else json_text(content, 1) if content is not None else ""


def words_beside_code(text: str, codes: Collection[str]) -> str:
    """Return a model's message without the blocks that are shown beside it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    separate = {code.strip() for code in codes}
    for block in reversed(extract_code_blocks(text)):
        first, last = block.line - 2, block.line - 1 + len(block.code.splitlines())
        fences = [lines[at] for at in (first, last) if 0 <= at < len(lines)]
        if block.code.strip() in separate and len(fences) == 2 and all(map(_FENCE.match, fences)):
            del lines[first : last + 1]
    return "\n".join(lines).strip()


def step_title(content: Mapping[str, Any], otherwise: str) -> str:
    """Return the first words of a step, without marks of markdown."""
    if content.get("code"):
        return title(content["code"][0]["code"][:1000].lstrip()) or title(otherwise)
    calls = ", ".join(each["name"] for each in content.get("calls", ()))
    text = content.get("error") or content.get("text") or content.get("stop_reason") or calls or otherwise
    return title(_MARKS.sub("", _FENCE_LINE.sub("", text[:1000]))) or title(otherwise)
