"""Output for people: colours and titles on a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from shutil import get_terminal_size
from textwrap import wrap
from typing import Literal

from autogen_codeact.cli.output import can_erase, clear_status, printable, unfiltered
from codeact_sandbox.highlight import Highlighter
from codeact_sandbox.types import filenames
from codeact_sandbox.types.text import apply_carriage_returns, format_count

FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([\w+-]*)")
MAX_CODE_LINE = 4_000
"""Characters of a line that wait for its end; a longer one is printed as it comes, without colours."""
_MAX_FENCE = 200
Piece = tuple[str, str]
"""A style and a text."""
MAX_WIDTH = 100
MAX_LINES = 40
MAX_LINE = 64 * 1024
"""Characters of a line that wait for its end, because a carriage return could still replace them."""
MAX_TEXT, MAX_TEXT_LINES = 1_000_000, 10_000
_STYLES = {
    "k": "bright_blue",
    "nb": "bright_cyan",
    "nf": "bright_green",
    "m": "bright_blue",
    "s": "yellow",
    "c": "dim",
}
_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")
_NUMBERS = {
    "bold": 1,
    "dim": 2,
    **{name: number for number, name in enumerate(_COLOURS, 31)},
    **{f"bright_{name}": number for number, name in enumerate(_COLOURS, 91)},
}
"""Of escape sequences."""
_IDLE_RETURNS = re.compile(r"(?<=[\r\n])\r+")
_INCOMPLETE_END = re.compile(r"(?:\r|\x1b(?:\[[0-9;]*)?)\Z")

Style = Literal["cyan", "green", "red", "yellow", "magenta", "blue", "dim"]


def format_size(size: int) -> str:
    """Format a number of bytes: "512 bytes", "23 kB", "498 MB"."""
    if size < 1000:
        return format_count(size, "byte")
    return f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.0f} MB"


def shorten(text: str, lines: int = MAX_LINES) -> str:
    """Return the head and tail of a long text, with a line about the lines left out between them."""
    all_lines = text.split("\n")
    if len(all_lines) <= lines:
        return text
    half = lines // 2
    missing = f"[… {len(all_lines) - 2 * half} lines left out here; --json has them all …]"
    return "\n".join([*all_lines[:half], missing, *all_lines[-half:]])


def clipped(text: str) -> str:
    """Return the beginning of a text that is too long for a terminal."""
    if len(text) <= MAX_TEXT and text.count("\n") <= MAX_TEXT_LINES:
        return text
    kept = "\n".join(text[:MAX_TEXT].split("\n", MAX_TEXT_LINES)[:MAX_TEXT_LINES])
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out here; --json has them all …]"


class Terminal:
    """Standard output for a user. All text is escaped; only this class writes escape sequences."""

    def __init__(self) -> None:
        self._stream = unfiltered(sys.stdout)
        self.is_terminal = self._stream.isatty()
        self.has_colours = self.is_terminal and can_erase() and not os.environ.get("NO_COLOR")
        self.width = min(get_terminal_size().columns, MAX_WIDTH) if self.is_terminal else None
        """Columns of text, or None if lines are not broken."""
        self._pending = self._last = self._line = ""

    def line(self, text: str = "", style: Style | None = None, *, bold: bool = False) -> None:
        """Write a line; long lines are not wrapped."""
        self._write_styled((f"{'bold' if bold else ''} {style or ''}".strip(), clipped(text)), ("", "\n"))

    def code(self, code: Iterable[Piece]) -> None:
        """Write pieces of code at once, in the colours of their classes."""
        groups = groupby(code, key=itemgetter(0))
        self._write_styled(*((_STYLES.get(kind, ""), "".join(text for _, text in group)) for kind, group in groups))

    def field(self, name: str, text: str, style: Style | None = None, *, indent: int = 9) -> None:
        """Write a name and its value, as one row of a list."""
        left, lines = f"{printable(name):<{indent}}", [text]
        if self.width is not None:
            width = max(self.width - indent, 20)
            lines = [part for line in printable(text).split("\n") for part in wrap(line, width) or [""]]
        for line in lines:
            self._write_styled((f"bold {style or ''}".strip(), left), ("", f"{line}\n"))
            left = " " * indent

    def heading(self, title: str, style: Style) -> None:
        title = printable(title)
        if self.width is None or not can_erase():
            self.write(f"== {title} ==\n")
            return
        rule = "─" * max(self.width - len(title) - 4, 0)
        self._write_styled((style, "── "), (f"bold {style}", title), (style, f" {rule}"), ("", "\n"))

    def panel(self, title: str, text: str, style: Style, *, markdown: bool = False) -> None:
        """Write a text below its title."""
        self.heading(title, style)
        text = clipped(text).strip("\n")
        if markdown:
            answer = AnswerPrinter(self)
            answer.add(text)
            answer.end()
            self.line()
            return
        self.write(f"{text}\n\n")

    def write(self, text: str) -> None:
        """Write a part of a text at once."""
        self._put(printable(text))

    def _write_styled(self, *pieces: tuple[str, str]) -> None:
        self._put("".join(self._styled(style, printable(text)) for style, text in pieces))

    def _styled(self, style: str, text: str) -> str:
        if not (style and text and self.has_colours):
            return text
        numbers = ";".join(str(_NUMBERS[name]) for name in style.split())
        return f"\x1b[{numbers}m{text}\x1b[0m"

    def _put(self, text: str) -> None:
        with clear_status(self._stream, text):
            self._stream.write(text)
        self._stream.flush()

    def output(self, text: str) -> None:
        """Write a part of a program's output at once; an incomplete escape sequence at its end waits for the next part.

        A carriage return begins the line again. In a file or a pipe, a line is written when it has ended, in its last state.
        """
        text = self._pending + text
        end = _INCOMPLETE_END.search(text)
        self._pending = end[0] if end else ""
        self._write_output(text.removesuffix(self._pending))

    def end_output(self) -> None:
        """End a program's output, and its last line."""
        pending, self._pending = self._pending, ""
        # A carriage return alone does not end the line that it begins again.
        self._write_output("" if pending == "\r" else pending)
        self._write_line(printable(apply_carriage_returns(self._line)))
        self._line = ""
        if self._last not in ("", "\n"):
            self.write("\n")
        self._last = ""

    def _write_output(self, text: str) -> None:
        text = text.replace("\r\n", "\n")
        if self.is_terminal:
            text = _IDLE_RETURNS.sub("", printable(text, overwrites=True))
            self._write_line(text.lstrip("\r") if self._last in ("", "\n") else text)
            return
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._write_line(printable(apply_carriage_returns(self._line + whole) + newline))
            self._line = ""
        self._line += rest
        if len(self._line) > MAX_LINE:
            self._write_line(printable(apply_carriage_returns(self._line)))
            self._line = ""

    def _write_line(self, text: str) -> None:
        if text:
            self._last = text[-1]
            self._put(text)


class AnswerPrinter:
    """Prints an answer piece by piece: text at once, code line by line."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._line = ""
        self._begun = False  # the beginning of the line has been printed, and is not in `_line` any more
        self._fence: str | None = None
        self._highlighter = Highlighter("")
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        shown: list[Piece] = []
        *whole, rest = piece.split("\n")
        for part in whole:
            self._line += part
            shown += self._end_line()
        self._line += rest
        if len(self._line) > MAX_CODE_LINE or (self._line and self._fence is None and not self._may_be_fence()):
            shown.append(("", self._line if self._fence is None else filenames.printable(self._line, keep="\t")))
            self._line, self._begun = "", True
        if shown:
            self._terminal.code(shown)

    def end(self) -> str:
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
        line = filenames.printable(line, keep="\t")
        if begun:
            return [("", f"{line}\n")]
        if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = None
            return [("c", line), ("", "\n")]
        return [*self._highlighter.line(line), ("", "\n")]
