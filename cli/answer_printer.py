"""Prints the answer of a model while it comes: text at once, code blocks line by line with highlighting."""

from __future__ import annotations

import re

from rich.text import Text

from autogen_codeact.cli.terminal import Terminal

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_MAX_HIGHLIGHTED = 60
"""Lines that are highlighted together, because one can be inside a string that another begins: each new one needs all."""
_MAX_HIGHLIGHTED_CHARS = 4_000
_MAX_LINE = 4_000
"""Characters of a line of code that wait for its end; a longer one is printed as it comes, without colours."""
_MAX_FENCE = 200


class AnswerPrinter:
    """Prints an answer piece by piece.

    Args:
        terminal: Where to print.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._line = ""
        self._begun = False  # the beginning of the line has been printed, and is not in `_line` any more
        self._fence: str | None = None
        self._language = ""
        self._code: list[str] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Print a piece of the answer."""
        self._pieces.append(piece)
        *whole, rest = piece.split("\n")
        for part in whole:
            self._line += part
            self._end_line()
        self._line += rest
        if self._line and (len(self._line) > _MAX_LINE or (self._fence is None and not self._may_be_fence())):
            self._terminal.write(self._line)
            self._line, self._begun = "", True

    def end(self) -> str:
        """End the answer, and return it."""
        if self._line or self._begun:
            self._end_line()
        text, self._pieces = "".join(self._pieces), []
        self._fence, self._code = None, []
        return text

    def _may_be_fence(self) -> bool:
        """Return whether the line could still become the beginning or the end of a block."""
        start = self._line[:_MAX_FENCE].lstrip(" ")
        return not self._begun and len(self._line) <= _MAX_FENCE and (not start or start[0] in "`~")

    def _end_line(self) -> None:
        line, self._line, begun, self._begun = self._line, "", self._begun, False
        match = None if begun else _FENCE.match(line)
        if begun:
            self._terminal.write(f"{line}\n")
        elif self._fence is None and match is not None:
            self._fence, self._language, self._code = match[1], match[2], []
            self._terminal.line(line, "dim")
        elif (
            self._fence is not None and line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0])
        ):
            self._fence = None
            self._terminal.line(line, "dim")
        elif self._fence is not None:
            self._show_code(line)
        else:
            self._terminal.write(f"{line}\n")

    def _show_code(self, line: str) -> None:
        self._code.append(line)
        if not self._terminal.is_terminal:
            self._terminal.line(line)
            return
        if len(line) > _MAX_HIGHLIGHTED_CHARS:
            self._code = []
            self._terminal.line(line)
            return
        if len(self._code) > _MAX_HIGHLIGHTED or sum(map(len, self._code)) > _MAX_HIGHLIGHTED_CHARS:
            self._code = [line]
        self._terminal.text(highlighted(self._code, self._language))


def highlighted(lines: list[str], language: str) -> Text:
    """Return the last of some lines of code with colours; the others say what it is part of.

    Args:
        lines: The code.
        language: Its language, as in a fence; of an unknown one, the line stays as it is.
    """
    from rich.syntax import Syntax  # noqa: PLC0415 - not needed without a terminal

    code = "\n".join(lines)
    text = Syntax(code, language or "python", theme="ansi_dark").highlight(code)
    parts = text.split("\n", allow_blank=True)
    # Control characters can change how many lines there are.
    return parts[len(lines) - 1] if len(parts) >= len(lines) else Text(lines[-1])
