"""Text: counts in sentences, lines that a progress bar overwrites, and how deeply JSON is nested."""

from __future__ import annotations

import re

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_STRING_OR_MARK = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{,]', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def format_count(number: int, name: str, plural: str | None = None) -> str:
    """Format a number of things: "1 task", "1,200 tasks"."""
    return f"{number:,} {name if number == 1 else plural or f'{name}s'}"


def format_percent(part: float) -> str:
    """Format a fraction as a percentage: "66.7%"."""
    return f"{100 * part:.1f}%"


def apply_carriage_returns(text: str) -> str:
    """Apply carriage returns as a terminal does: later text overwrites the line. In linear time."""
    if "\r" not in text:
        return text
    return "\n".join(_applied(line) if "\r" in line else line for line in text.split("\n"))


def _applied(line: str) -> str:
    # One at the end belongs to the end of the line.
    end = "\r" if line.endswith("\r") else ""
    pieces = line.removesuffix("\r").split("\r")
    if len(pieces) == 1:
        return line
    shown: list[str] = []
    covered = 0
    for piece in reversed(pieces):
        if len(piece) > covered:
            shown.append(piece[covered:])
            covered = len(piece)
    return "".join(shown).rstrip(" ") + end


def check_nesting(data: bytes, limit: int) -> None:
    """Check, before it is parsed, that JSON is not nested too deeply.

    A parser would notice at the end of Python's stack. A finalizer of this program that the garbage collector calls there would
    fail too.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    # Removing strings costs most, and is needed only if they contain brackets.
    if _exceeds_depth(data, limit) and _exceeds_depth(_STRING.sub(b"", data), limit):
        raise ValueError(f"lists and objects are nested deeper than {limit}, or not closed")


def check_parts(data: bytes, marks: bytes, limit: int) -> None:
    """Check, before it is parsed, that JSON has not too many of some characters outside of its strings."""
    if sum(map(data.count, marks)) <= limit:
        return
    # One by one, because other threads can run between them.
    if sum(each[0] in marks for each in _STRING_OR_MARK.finditer(data)) > limit:
        raise ValueError(f"more than {limit:,} lists, objects or parts")


def _exceeds_depth(data: bytes, limit: int) -> bool:
    brackets = data.translate(_ONE_KIND, _NO_BRACKETS)
    opening, closing = b"[" * (limit + 1), b"]" * (limit + 1)
    for _ in range(limit):
        if not brackets or opening in brackets or closing in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
