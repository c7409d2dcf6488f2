"""What a chat prints of a model's words, of any length."""

import pytest

from autogen_codeact.cli import chat_words
from autogen_codeact.cli.chat_words import Words


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
def words(screen):
    return Words(screen)


def test_lines_of_words_and_code_are_printed_once(words, screen):
    answer = "Hello.\n\n  ```python\nx = 1\n\n```\n    indented\n`a` and ~b~\nend"
    for piece in answer:
        words.add(piece)
    assert words.end() == answer
    assert screen.shown == f"{answer}\n"


def test_long_line_of_code_is_printed_before_its_end(words, screen):
    words.add("```python\n")
    for _ in range(50):
        words.add("x" * 100)
    assert len(screen.shown) > 4_000
    words.add(" + 1\ny = 2\n```\nDone.")
    assert screen.shown.endswith(" + 1\ny = 2\n```\nDone.")


def test_spaces_do_not_wait_for_a_fence_without_end(words, screen):
    words.add(" " * 1_000)
    assert screen.shown == " " * 1_000


def test_code_is_highlighted_with_few_lines_before_it(words, screen, monkeypatch):
    # All lines of a long answer, again for each of its lines, would stop the chat, and Ctrl-C with it.
    sizes = []
    highlighted = chat_words.highlighted

    def measured(lines, language):
        sizes.append((len(lines), sum(map(len, lines))))
        return highlighted(lines, language)

    monkeypatch.setattr(chat_words, "highlighted", measured)
    screen.is_terminal = True
    words.add("```python\n")
    words.add("".join(f"value = {number}\n" for number in range(200)))
    words.add(f"{'y' * 3_000}\n" * 3 + f"{'z' * 9_000}\n")
    assert len(sizes) == 203
    assert max(lines for lines, _ in sizes) <= 60
    assert max(size for _, size in sizes) <= 4_000
