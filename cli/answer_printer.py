"""Prints the answer of a model while it comes: text at once, code blocks line by line with highlighting."""

from __future__ import annotations

import re

from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.sandbox.highlight import Highlighter, Kind
from autogen_codeact.sandbox.types.filenames import printable

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_MAX_LINE = 4_000
"""Characters of a line of code that wait for its end; a longer one is printed as it comes, without colours."""
_MAX_FENCE = 200


class AnswerPrinter:
    """Prints an answer piece by piece."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._line = ""
        self._begun = False  # the beginning of the line has been printed, and is not in `_line` any more
        self._fence: str | None = None
        self._highlighter = Highlighter("")
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Print a piece of the answer."""
        self._pieces.append(piece)
        shown: list[tuple[Kind, str]] = []
        *whole, rest = piece.split("\n")
        for part in whole:
            self._line += part
            shown += self._end_line()
        self._line += rest
        if self._line and (len(self._line) > _MAX_LINE or (self._fence is None and not self._may_be_fence())):
            shown.append(("", self._visible(self._line)))
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

    def _visible(self, line: str) -> str:
        """Return a line of code with all that can't be seen as escapes, because somebody may be asked whether it may run."""
        return line if self._fence is None else printable(line, keep="\t")

    def _may_be_fence(self) -> bool:
        """Return whether the line could still become the beginning or the end of a block."""
        start = self._line[:_MAX_FENCE].lstrip(" ")
        return not self._begun and len(self._line) <= _MAX_FENCE and (not start or start[0] in "`~")

    def _end_line(self) -> list[tuple[Kind, str]]:
        line, self._line, begun, self._begun = self._line.removesuffix("\r"), "", self._begun, False
        match = None if begun else _FENCE.match(line)
        if self._fence is None and match is not None:
            self._fence, self._highlighter = match[1], Highlighter(match[2] or "python")
            return [("c", line), ("", "\n")]
        line = self._visible(line)
        if begun or self._fence is None:
            return [("", f"{line}\n")]
        if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = None
            return [("c", line), ("", "\n")]
        return [*self._highlighter.line(line), ("", "\n")]
