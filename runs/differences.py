"""What differs between two versions of a text, in bounded time."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MAX_CHANGED_LINES = 400
"""Lines between the first and the last change, in the shorter version: the time of a comparison grows with their square."""


def differing_lines(
    before: Sequence[str], after: Sequence[str], name: str = "", *, context: int = 3
) -> list[str] | None:
    """Return the lines of a unified diff."""
    start = _same_at_start(before, after)
    end = _same_at_start(before[start:][::-1], after[start:][::-1])
    if min(len(before), len(after)) - start - end > MAX_CHANGED_LINES:
        return None
    # The same lines at both ends take no time.
    first, last = max(0, start - context), max(0, end - context)
    diff = difflib.unified_diff(
        before[first : len(before) - last], after[first : len(after) - last], name, name, lineterm="", n=context
    )
    return [_moved(line, first) if line.startswith("@@") else line for line in diff]


def _moved(header: str, by: int) -> str:
    """Return the header of a hunk with line numbers that count from the beginning of the file."""
    if not by:
        return header
    parts = header.split(" ")
    for at in (1, 2):
        start, comma, size = parts[at][1:].partition(",")
        parts[at] = f"{parts[at][0]}{int(start) + by}{comma}{size}"
    return " ".join(parts)


def _same_at_start(one: Sequence[str], other: Sequence[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
