"""Output for people: boxes and colours on a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Literal, TextIO, cast

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.padding import Padding
from rich.panel import Panel
from rich.segment import Segment
from rich.text import Text

from autogen_codeact.agents.markdown import markdown_tokens
from autogen_codeact.cli.output import clear_status, printable, unfiltered
from codeact_sandbox.highlight import Highlighter, Kind, pieces
from codeact_sandbox.types.carriage_returns import apply_carriage_returns
from codeact_sandbox.types.filenames import printable as visible
from codeact_sandbox.types.formatting import format_count

NEWLINE = "\n"
MAX_WIDTH = 100
MAX_LINES = 40
MAX_LINE = 64 * 1024
"""Characters of a line that wait for its end, because a carriage return could still replace them."""
MAX_TEXT, MAX_TEXT_LINES = 1_000_000, 10_000
MAX_BOX_CHARS, MAX_BOX_LINES, MAX_TOKENS = 10_000, 500, 1_500
"""Text that is drawn in a box, and tokens of markdown that is rendered: rich takes about 0.1 ms for each line and token."""
_STYLES: dict[Kind, str] = {
    "k": "bright_blue",
    "nb": "bright_cyan",
    "nf": "bright_green",
    "m": "bright_blue",
    "s": "yellow",
    "c": "dim",
    "gi": "bright_green",
    "gd": "bright_red",
    "gu": "bold bright_magenta",
}
_IDLE_RETURNS = re.compile(r"(?<=[\r\n])\r+")
_INCOMPLETE_END = re.compile(r"(?:\r|\x1b(?:\[[0-9;]*)?)\Z")

Style = Literal["cyan", "green", "red", "yellow", "magenta", "blue", "dim"]
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_MAX_LINE = 4_000
"""Characters of a line of code that wait for its end; a longer one is printed as it comes, without colours."""
_MAX_FENCE = 200


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
    """Return the beginning of a text that is too long for a terminal: for each line, rich makes objects."""
    if len(text) <= MAX_TEXT and text.count("\n") <= MAX_TEXT_LINES:
        return text
    kept = "\n".join(text[:MAX_TEXT].split("\n", MAX_TEXT_LINES)[:MAX_TEXT_LINES])
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out here; --json has them all …]"


def coloured(code: Iterable[tuple[Kind, str]]) -> Text:
    """Return pieces of code in the colours of their classes; unprintable characters are escaped."""
    return Text.assemble(*((printable(text), _STYLES.get(kind, "")) for kind, text in code))


class Terminal:
    """Standard output for a user."""

    def __init__(self) -> None:
        self._output = cast(TextIO, _RichOutput())
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=False, file=self._output)
        self.is_terminal = self._console.is_terminal
        self._width = min(self._console.width, MAX_WIDTH)
        self._pending = self._last = self._line = ""

    def line(self, text: str = "", style: Style | None = None, *, bold: bool = False) -> None:
        """Write a line; long lines are not wrapped."""
        styles = f"{'bold' if bold else ''} {style or ''}".strip()
        self._write_styled([(styles, clipped(text)), ("", "\n")])

    def code(self, code: Iterable[tuple[Kind, str]]) -> None:
        """Write pieces of code at once, in the colours of their classes; unprintable characters are escaped."""
        groups = groupby(code, key=itemgetter(0))
        self._write_styled((_STYLES.get(kind, ""), "".join(text for _, text in group)) for kind, group in groups)

    def _write_styled(self, pieces: Iterable[tuple[str, str]]) -> None:
        """Write styles and texts; rich would take ten times longer for many short lines."""
        self._output.write("".join(self._console.styled(printable(text), style) for style, text in pieces))
        self._output.flush()

    def field(self, name: str, text: str, style: Style | None = None, *, indent: int = 9) -> None:
        """Write a name and its value, as one row of a list."""
        left = Text(f"{printable(name):<{indent}}", style=f"bold {style or ''}".strip())
        right = Text(printable(text))
        lines = right.wrap(self._console, max(self._width - indent, 20)) if self.is_terminal else [right]
        for line in lines:
            self._console.print(Text.assemble(left, line), soft_wrap=True)
            left = Text(" " * indent)

    def heading(self, title: str, style: Style) -> None:
        """Write the title of text that follows in parts."""
        if not self.is_terminal:
            self._console.print(Text(f"== {printable(title)} =="), soft_wrap=True)
            return
        rule = "─" * max(self._width - len(title) - 4, 0)
        text = Text.assemble(("── ", style), (printable(title), f"bold {style}"), (f" {rule}", style))
        self._console.print(text, soft_wrap=True)

    def panel(self, title: str, text: str, style: Style, *, markdown: bool = False) -> None:
        """Write a text in a box with a title; without a terminal, below its title."""
        title, text = printable(title), clipped(text)
        if not self.is_terminal:
            self.write(f"== {title} ==\n{printable(text).strip(NEWLINE)}\n\n")
            return
        if len(text) > MAX_BOX_CHARS or printable(text).count("\n") > MAX_BOX_LINES:
            self.heading(title, style)
            self.write(f"{text.strip(NEWLINE)}\n\n")
            return
        tokens = markdown_tokens(_new_parser(), text, MAX_TOKENS) if markdown else None
        body = _Markdown(tokens) if tokens is not None else Text(printable(text).strip(NEWLINE))
        heading = Text(title, style=f"bold {style}" if style != "dim" else "dim")
        self._console.print(
            Panel(body, title=heading, title_align="left", border_style=style, box=ROUNDED, width=self._width)
        )

    def write(self, text: str) -> None:
        """Write a part of a text at once."""
        sys.stdout.write(printable(text))
        sys.stdout.flush()

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
        self._write_line(apply_carriage_returns(self._line))
        self._line = ""
        if self._last not in ("", "\n"):
            self.write("\n")
        self._last = ""

    def _write_output(self, text: str) -> None:
        text = text.replace("\r\n", "\n")
        if self.is_terminal:
            self._write_overwriting(_IDLE_RETURNS.sub("", printable(text, overwrites=True)))
            return
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._write_line(apply_carriage_returns(self._line + whole) + newline)
            self._line = ""
        self._line += rest
        if len(self._line) > MAX_LINE:
            self._write_line(apply_carriage_returns(self._line))
            self._line = ""

    def _write_line(self, text: str) -> None:
        if text:
            self._last = text[-1]
            self.write(text)

    def _write_overwriting(self, text: str) -> None:
        """Write safe text at once: code can print any number of carriage returns."""
        if self._last in ("", NEWLINE):
            text = text.lstrip("\r")
        if text:
            self._last = text[-1]
            stream = unfiltered(sys.stdout)
            with clear_status(stream, text):
                stream.write(text)
            stream.flush()


class _RichOutput:
    """Standard output without the escaping of `output.py`, because rich writes escape sequences of its own."""

    def __init__(self) -> None:
        self._stream = unfiltered(sys.stdout)

    def write(self, text: str) -> int:
        with clear_status(self._stream, text):
            return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Console(Console):
    """A console that escapes unprintable characters in all text between rich's own escape sequences."""

    def styled(self, text: str, style: str) -> str:
        """Return text with the escape sequences of a style, as far as this console has colours."""
        colours = None if self.no_color else self._color_system
        return self.get_style(style).render(text, color_system=colours) if style else text

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Padding(coloured(pieces(str(self.text).rstrip(), self.lexer_name)), (0, 2))


class _Markdown(Markdown):
    """Markdown without blank lines around code, and with HTML as text: rich drops it, but models write tags like <execute>."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "fence": _Code, "code_block": _Code}

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = tokens
        _make_printable(tokens)


def _new_parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _make_printable(tokens: list[Token]) -> None:
    """Escape the parser's output, not its input: only the parser decodes entities such as `&#x202e;`."""
    for token in tokens:
        token.content, token.info = printable(token.content), printable(token.info)
        token.attrs = {
            name: printable(value) if isinstance(value, str) else value for name, value in token.attrs.items()
        }
        _make_printable(token.children or [])


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
        return line if self._fence is None else visible(line, keep="\t")

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
