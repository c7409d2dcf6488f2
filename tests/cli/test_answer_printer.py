"""What a chat prints of an answer of a model, of any length."""

import pytest

from autogen_codeact.cli import answer_printer
from autogen_codeact.cli.answer_printer import AnswerPrinter


class Screen:
    """Keeps what is printed, without colours."""

    def __init__(self, *, is_terminal=False):
        self.is_terminal = is_terminal
        self.shown = ""

    def write(self, text):
        self.shown += text

    def line(self, text="", style=None):
        self.shown += f"{text}\n"

    def text(self, text):
        self.line(text.plain)


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


def test_code_is_highlighted_with_few_lines_before_it(printer, screen, monkeypatch):
    # All lines of a long answer, again for each of its lines, would stop the chat, and Ctrl-C with it.
    sizes = []
    highlighted = answer_printer.highlighted

    def measured(lines, language):
        sizes.append((len(lines), sum(map(len, lines))))
        return highlighted(lines, language)

    monkeypatch.setattr(answer_printer, "highlighted", measured)
    screen.is_terminal = True
    printer.add("```python\n")
    printer.add("".join(f"value = {number}\n" for number in range(200)))
    printer.add(f"{'y' * 3_000}\n" * 3 + f"{'z' * 9_000}\n")
    assert len(sizes) == 203
    assert max(lines for lines, _ in sizes) <= 60
    assert max(size for _, size in sizes) <= 4_000
