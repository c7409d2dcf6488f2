"""Writing for people: boxes and colours on a terminal, plain lines everywhere else."""

from __future__ import annotations

import re
import sys
from typing import ClassVar, Literal

from markdown_it import MarkdownIt
from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

MAX_WIDTH = 100
MAX_LINES = 40
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_UNFINISHED = re.compile(r"(?:\r|\x1b(?:\[[0-9;]*)?)\Z")
# Joiners are invisible too, but several scripts and most emoji are written with them.
_HARMLESS = "\n\t\u200c\u200d"

Style = Literal["cyan", "green", "red", "yellow", "magenta", "blue", "dim"]


def printable(text: str) -> str:
    """Make text fit for a terminal: what could steer it, or hide in it, is shown as an escape.

    Args:
        text: From a model or from a sandbox; neither is trusted.
    """
    text = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        char
        if char.isprintable() or (char.isspace() and char in "\n\t\xa0\u3000") or char in _HARMLESS
        else _escape(char)
        for char in text
    )


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


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
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
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
        title, text = printable(title), printable(text).strip("\n")
        if not self.is_terminal:
            self._console.print(Text(f"== {title} ==\n{text}\n"), soft_wrap=True)
            return
        body = _Markdown(text) if markdown else Text(text)
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
