"""Applies carriage returns as a terminal does: later text overwrites the line, so a progress bar keeps its last state only."""

from __future__ import annotations


def apply_carriage_returns(text: str) -> str:
    """Return text with each line in its last state, in linear time."""
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
