"""The last state of progress bars: text after a carriage return replaces what stands in its line."""

from __future__ import annotations


def fold_carriage_returns(text: str) -> str:
    """Return text with each line in its last state; the time grows with its length only.

    Args:
        text: Output of a program. `\\r\\n` stays as it is.
    """
    if "\r" not in text:
        return text
    return "\n".join(_folded(line) if "\r" in line else line for line in text.split("\n"))


def _folded(line: str) -> str:
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
