"""Writing for people: boxes and colours on a terminal, plain lines everywhere else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import ClassVar, Literal, TextIO

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.panel import Panel
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from autogen_codeact.cli.output import printable

NEWLINE = "\n"
MAX_WIDTH = 100
MAX_LINES = 40
_UNFINISHED = re.compile(r"(?:\r|\x1b(?:\[[0-9;]*)?)\Z")

Style = Literal["cyan", "green", "red", "yellow", "magenta", "blue", "dim"]


def seconds(duration: float) -> str:
    """Write a duration: "8 ms", "0.24 s", "12.3 s"."""
    if duration < 0.1:
        return f"{duration * 1000:.0f} ms"
    return f"{duration:.2f} s" if duration < 10 else f"{duration:.1f} s"


def amount(size: int) -> str:
    """Write a number of bytes: "512 bytes", "23 kB", "498 MB"."""
    if size < 1000:
        return f"{size} byte{'' if size == 1 else 's'}"
    return f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.0f} MB"


def shortened(text: str, lines: int = MAX_LINES) -> str:
    """Keep the head and tail of a long text, and say how much is missing between them."""
    all_lines = text.split("\n")
    if len(all_lines) <= lines:
        return text
    half = lines // 2
    missing = f"[… {len(all_lines) - 2 * half} lines left out here; --json has them all …]"
    return "\n".join([*all_lines[:half], missing, *all_lines[-half:]])


class Screen:
    """Standard output, for a person."""

    def __init__(self) -> None:
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=False, file=_terminal())
        self.is_terminal = self._console.is_terminal
        self._width = min(self._console.width, MAX_WIDTH)
        self._held = self._last = ""

    def line(self, text: str = "", style: Style | None = None, *, bold: bool = False) -> None:
        """Write a line; one that is longer than the screen is wrapped on a terminal only.

        Args:
            text: Without markup; made printable here.
            style: Its colour.
            bold: Whether it is bold.
        """
        look = " ".join(word for word in ("bold" if bold else "", style or "") if word)
        self._console.print(Text(printable(text), style=look), soft_wrap=True)

    def fact(self, name: str, text: str, style: Style | None = None, *, indent: int = 9) -> None:
        """Write a name and what is to be said about it, as one row of a list.

        Args:
            name: Left column.
            text: Right column, wrapped on a terminal only.
            style: Colour of the name.
            indent: Width of the left column, in characters.
        """
        left = Text(f"{printable(name):<{indent}}", style=f"bold {style or ''}".strip())
        right = Text(printable(text))
        lines = right.wrap(self._console, max(self._width - indent, 20)) if self.is_terminal else [right]
        for line in lines:
            self._console.print(left + line, soft_wrap=True)
            left = Text(" " * indent)

    def panel(self, title: str, text: str, style: Style, *, markdown: bool = False) -> None:
        """Write a text in a box with a title, or below its title where there are no boxes.

        Args:
            title: What it is.
            text: The text, made printable here.
            style: Colour of the box.
            markdown: Whether the text is to be rendered as markdown.
        """
        title = printable(title)
        if not self.is_terminal:
            self._console.print(Text(f"== {title} ==\n{printable(text).strip(NEWLINE)}\n"), soft_wrap=True)
            return
        body = _Markdown(text) if markdown else Text(printable(text).strip(NEWLINE))
        heading = Text(title, style=f"bold {style}" if style != "dim" else "dim")
        self._console.print(
            Panel(body, title=heading, title_align="left", border_style=style, box=ROUNDED, width=self._width)
        )

    def piece(self, text: str) -> None:
        """Write a piece of a text that is still coming, at once."""
        sys.stdout.write(printable(text))
        sys.stdout.flush()

    def output(self, text: str) -> None:
        """Write a piece of a program's output at once, but for an end that only the next piece makes whole."""
        text = self._held + text
        cut = _UNFINISHED.search(text)
        self._held = cut[0] if cut else ""
        text = text.removesuffix(self._held)
        self._last = text[-1:] or self._last
        self.piece(text)

    def end_output(self) -> None:
        """End a program's output: what follows begins a line."""
        held, self._held = self._held, ""
        self.piece(held)
        if (held or self._last or "\n")[-1] not in "\r\n":
            self.piece("\n")
        self._last = ""


def _terminal() -> TextIO:
    """Standard output for rich, which writes its own escape sequences and otherwise only printable text."""
    stream: TextIO = getattr(sys.stdout, "unfiltered", sys.stdout)
    return stream


class _Console(Console):
    """A console that makes all text between rich's own escape sequences printable."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 2))


class _Markdown(Markdown):
    """Markdown without rich's blank lines around code, and with all that the model said.

    Rich leaves HTML out, but models write tags such as <execute>.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.parsed = MarkdownIt("commonmark", {"html": False}).enable("table").parse(text)
        _make_printable(self.parsed)


def _make_printable(tokens: list[Token]) -> None:
    """Make the parser's output printable: an entity such as `&#x202e;` is harmless before parsing."""
    for token in tokens:
        token.content, token.info = printable(token.content), printable(token.info)
        token.attrs = {
            name: printable(value) if isinstance(value, str) else value for name, value in token.attrs.items()
        }
        _make_printable(token.children or [])
