"""Formatting of output for people, and what is printed of an answer of a model, of any length."""

import pytest

from autogen_codeact.cli.output import printable
from autogen_codeact.cli.terminal import AnswerPrinter, Terminal, format_size, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]52;c;cGF5\x07", r"\x1b]52;c;cGF5\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("zero\u200bwidth \ud800", r"zero\u200bwidth \ud800"),
        ("naïve 数 \u3000 \xa0 👩\u200d🔬", "naïve 数 \u3000 \xa0 👩\u200d🔬"),
    ],
)
def test_printable_escapes_control_and_invisible_characters(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (18_700, "19 kB"), (498_000_000, "498 MB")]
)
def test_format_size(size, shown):
    assert format_size(size) == shown


def test_shorten_keeps_head_and_tail():
    text = "\n".join(map(str, range(100)))
    lines = shorten(text, 10).split("\n")
    assert lines == [*"01234", "[… 90 lines left out here; --json has them all …]", "95", "96", "97", "98", "99"]
    assert shorten("a\nb", 10) == "a\nb"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["a\n", "b"], "a\nb\n"),
        (["a\x1b[3", "1mred\x1b", "[0m\r", "\nend\n"], "ared\nend\n"),
        (["a\r"], "a\n"),
        (["10%", "\r20%", "\r", "30%\nx"], "30%\nx\n"),
        (["100%\r", "ok"], "ok0%\n"),
        (["a\x1b["], "a\\x1b[\n"),
        (["a\tb", "", ""], "a\tb\n"),
        ([""], ""),
        ([], ""),
    ],
)
def test_output_in_parts_is_escaped_as_a_whole_and_ends_with_a_line_break(capsys, pieces, shown):
    terminal = Terminal()
    for _ in range(2):
        for piece in pieces:
            terminal.output(piece)
        terminal.end_output()
    assert capsys.readouterr().out == shown * 2


class Screen:
    """Keeps what is printed."""

    def __init__(self):
        self.pieces = []
        self.shown = ""

    def code(self, pieces):
        self.pieces += pieces
        self.shown += "".join(text for _, text in pieces)


@pytest.fixture
def screen():
    return Screen()


@pytest.fixture
def printer(screen):
    return AnswerPrinter(screen)


def test_lines_of_text_and_code_are_printed_once(printer, screen):
    answer = "Hello.\n\n  ```python\nx = 1\n\n```\n    indented\n`a` and ~b~\nend"
    for piece in answer:
        printer.add(piece)
    assert printer.end() == answer
    assert screen.shown == f"{answer}\n"


def test_long_line_of_code_is_printed_before_its_end(printer, screen):
    printer.add("```python\n")
    for _ in range(50):
        printer.add("x" * 100)
    assert len(screen.shown) > 4_000
    printer.add(" + 1\ny = 2\n```\nDone.")
    assert screen.shown.endswith(" + 1\ny = 2\n```\nDone.")


def test_spaces_do_not_wait_for_a_fence_without_end(printer, screen):
    printer.add(" " * 1_000)
    assert screen.shown == " " * 1_000


def test_a_string_of_several_lines_is_highlighted_while_it_comes(printer, screen):
    for piece in 'See:\n```python\ndef f():\r\n    """One\n    if 2"""\n```\nif':
        printer.add(piece)
    printer.end()
    coloured = [piece for piece in screen.pieces if piece[0] and "`" not in piece[1]]
    assert coloured == [("k", "def"), ("nf", "f"), ("s", '"""One'), ("s", '    if 2"""')]
    assert "\r" not in screen.shown
