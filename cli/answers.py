"""Prints an answer of a model while it comes, with its code in colours. Its text is not interpreted: marks of markdown stay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from codeact_sandbox.highlight import Highlighter
from codeact_sandbox.types.filenames import printable as visible

FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([\w+-]*)")
MAX_LINE = 4_000
"""Characters of a line that wait for its end; a longer one is printed as it comes, without colours."""
_MAX_FENCE = 200
Piece = tuple[str, str]
"""A style and a text."""


class _Screen(Protocol):
    """What answers are printed on, such as a `Terminal`."""

    def code(self, code: Iterable[Piece]) -> None:
        """Print pieces with their styles."""


class AnswerPrinter:
    """Prints an answer piece by piece: text at once, code line by line."""

    def __init__(self, terminal: _Screen) -> None:
        self._terminal = terminal
        self._line = ""
        self._begun = False  # the beginning of the line has been printed, and is not in `_line` any more
        self._fence: str | None = None
        self._highlighter = Highlighter("")
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Print a piece of the answer."""
        self._pieces.append(piece)
        shown: list[Piece] = []
        *whole, rest = piece.split("\n")
        for part in whole:
            self._line += part
            shown += self._end_line()
        self._line += rest
        if len(self._line) > MAX_LINE or (self._line and self._fence is None and not self._may_be_fence()):
            shown.append(("", self._line if self._fence is None else visible(self._line, keep="\t")))
            self._line, self._begun = "", True
        if shown:
            self._terminal.code(shown)

    def end(self) -> str:
        """End the answer, and return it."""
        if self._line or self._begun:
            self._terminal.code(self._end_line())
        text, self._pieces = "".join(self._pieces), []
        self._fence = None
        return text

    def _may_be_fence(self) -> bool:
        """Return whether the line could still become the beginning of a block."""
        start = self._line[:_MAX_FENCE].lstrip(" ")
        return not self._begun and len(self._line) <= _MAX_FENCE and (not start or start[0] in "`~")

    def _end_line(self) -> list[Piece]:
        line, self._line, begun, self._begun = self._line.removesuffix("\r"), "", self._begun, False
        match = None if begun else FENCE.match(line)
        if self._fence is None:
            if match is None:
                return [("", f"{line}\n")]
            self._fence, self._highlighter = match[1], Highlighter(match[2] or "python")
            return [("c", line), ("", "\n")]
        # All that can't be seen as escapes: the user may be asked whether the code may run.
        line = visible(line, keep="\t")
        if begun:
            return [("", f"{line}\n")]
        if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = None
            return [("c", line), ("", "\n")]
        return [*self._highlighter.line(line), ("", "\n")]
