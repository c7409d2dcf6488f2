"""What a chat prints of an answer of a model, of any length."""

import pytest

from autogen_codeact.cli.terminal import AnswerPrinter


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
