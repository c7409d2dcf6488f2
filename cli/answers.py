"""Prints an answer of a model while it comes: its markdown with styles, its lines broken between words, its code in colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from codeact_sandbox.highlight import Highlighter
from codeact_sandbox.types.filenames import printable as visible

FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([\w+-]*)")
MAX_LINE = 4_000
"""Characters of a line that wait for its end; a longer one is printed as it comes, without styles."""
_MAX_FENCE = 200
_MARKED = re.compile(
    r"(?<![\w*\\])(\*{1,2})(?=[^\s*])([^*\n]{0,400}?[^\s*])\1(?![\w*])|(?<!`)(`{1,2})(?!`)([^\n]{1,400}?)(?<!`)\3(?!`)"
)
"""Words that are bold, in italics, or code."""
_MAX_MARKED = 400
_MARK = re.compile(r"(?<![\w*\\])\*{1,2}(?=[^\s*]|\Z)|`")
"""What may begin such words."""
_HEADING = re.compile(r" {0,3}#{1,6}\s+")
_ITEM = re.compile(r"\s*(?:(?:[-*+>]|\d{1,3}[.)])\s+)?")
Piece = tuple[str, str]
"""A style and a text."""


class _Screen(Protocol):
    """What answers are printed on, such as a `Terminal`."""

    has_colours: bool
    width: int | None

    def code(self, code: Iterable[Piece]) -> None:
        """Print pieces with their styles."""


class AnswerPrinter:
    """Prints an answer piece by piece. With `exact`, no mark of markdown is left out: somebody decides on what is shown."""

    def __init__(self, terminal: _Screen, *, exact: bool = False) -> None:
        self._terminal = terminal
        self._styled = terminal.has_colours and not exact
        self._line = ""
        self._begun = False  # the beginning of the line has been printed, and is not in `_line` any more
        self._column = self._indent = 0
        self._heading = False
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
        if len(self._line) > MAX_LINE:
            shown.append(("", self._line if self._fence is None else visible(self._line, keep="\t")))
            self._line, self._begun = "", True
        elif self._line and self._fence is None and not self._may_be_fence():
            shown += self._words(self._line, self._complete())
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
        """Return whether the line could still become the beginning or the end of a block."""
        start = self._line[:_MAX_FENCE].lstrip(" ")
        return not self._begun and len(self._line) <= _MAX_FENCE and (not start or start[0] in "`~")

    def _complete(self) -> int:
        """Return the length of the part of the line that can be printed: whole words, and no marks without their ends."""
        line = self._line
        if self._terminal.width is None:
            return len(line)
        if not self._begun and len(line.split(None, 2)) < 3:
            return 0  # it may be a heading or an item of a list
        end = len(line.rstrip()) if line[-1].isspace() else len(line) - len(line.split()[-1])
        end = len(line[:end].rstrip())
        at = 0
        while self._styled and (mark := _MARK.search(line, at)) is not None:
            found = _MARKED.match(line, mark.start())
            at = found.end() if found is not None else mark.end()
            if mark.start() < end and (end < at if found is not None else len(line) - mark.start() <= _MAX_MARKED):
                return len(line[: mark.start()].rstrip())
        return end

    def _words(self, line: str, end: int) -> list[Piece]:
        """Return the first part of the line, with styles and line breaks; the rest stays."""
        text, self._line = line[:end], line[end:]
        if not text or self._terminal.width is None:
            self._begun = self._begun or bool(text)
            return [("", text)]
        if not self._begun:
            self._begun, self._column = True, 0
            heading = _HEADING.match(text) if self._styled else None
            self._heading = heading is not None
            text = text[heading.end() :] if heading is not None else text
            item = _ITEM.match(text)
            self._indent = min(item.end() if item is not None else 0, self._terminal.width // 2)
        pieces = self._marked(text) if self._styled else [("", text)]
        return [("b" if self._heading else style, part) for style, part in self._broken(pieces)]

    @staticmethod
    def _marked(text: str) -> list[Piece]:
        pieces, at = [], 0
        for found in _MARKED.finditer(text):
            star, words, _, code = found.groups()
            style = "nb" if star is None else "b" if len(star) == 2 else "i"
            pieces += [("", text[at : found.start()]), (style, code if star is None else words)]
            at = found.end()
        return [*pieces, ("", text[at:])]

    def _broken(self, pieces: list[Piece]) -> list[Piece]:
        """Put line breaks between words that would not fit into the terminal's line."""
        text = "".join(part for _, part in pieces)
        width = self._terminal.width or 0
        breaks = set()  # where white space ends that becomes a line break
        for found in re.finditer(r"(\s*)(\S+)|\s+", text) if not text.lstrip().startswith("|") else ():
            space, word = found[1] or "", found[2] or ""
            self._column += len(found[0])
            if space and self._column > width and self._column - len(found[0]) > self._indent:
                breaks.add(found.start())
                self._column = self._indent + len(word)
        broken, at = [], 0
        for style, part in pieces:
            begin = 0
            for place in sorted(each - at for each in breaks if at <= each < at + len(part)):
                rest = part[place:].lstrip()
                broken += [(style, part[begin:place]), ("", "\n" + " " * self._indent)]
                begin = len(part) - len(rest)
            broken.append((style, part[begin:]))
            at += len(part)
        return broken

    def _end_line(self) -> list[Piece]:
        line, self._line, begun, self._begun = self._line.removesuffix("\r"), "", self._begun, False
        match = None if begun else FENCE.match(line)
        if self._fence is None and match is not None:
            self._fence, self._highlighter = match[1], Highlighter(match[2] or "python")
            return [("c", line), ("", "\n")]
        if self._fence is None:
            self._begun = begun
            pieces = [*self._words(line, len(line)), ("", "\n")]
            self._line, self._begun = "", False
            return pieces
        line = visible(
            line, keep="\t"
        )  # all that can't be seen as escapes: somebody may be asked whether the code may run
        if begun:
            return [("", f"{line}\n")]
        if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = None
            return [("c", line), ("", "\n")]
        return [*self._highlighter.line(line), ("", "\n")]
