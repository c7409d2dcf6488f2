"""Carriage returns in output, as a model sees them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeact_sandbox.types.text import apply_carriage_returns

BAR = "\r  0%|     | 0/2\r 50%|##   | 1/2\r100%|#####| 2/2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n", "plain\n"),
        ("windows\r\nlines\r\n", "windows\r\nlines\r\n"),
        (f"before\n{BAR}\nafter\n", "before\n100%|#####| 2/2\nafter\n"),
        ("long text\rshort", "shorttext"),
        ("done\r          \r", "\r"),
        ("a\rb\r\n", "b\r\n"),
        ("\r\r\n", "\r\n"),
        ("working...\r", "working...\r"),
        ("", ""),
    ],
)
def test_each_line_has_its_last_state(text: Any, shown: Any) -> None:
    assert apply_carriage_returns(text) == shown


@given(st.text(alphabet="ab \r\n", max_size=40))
def test_shown_text_is_what_a_terminal_shows(text: str) -> None:
    expected = []
    for line in text.split("\n"):
        cells: list[str] = []
        at = 0
        for char in line.removesuffix("\r"):
            if char == "\r":
                at = 0
            else:
                cells[at : at + 1] = [char]
                at += 1
        overwritten = "\r" in line.removesuffix("\r")
        end = "\r" if line.endswith("\r") else ""
        expected.append(("".join(cells).rstrip(" ") if overwritten else "".join(cells)) + end)
    assert apply_carriage_returns(text) == "\n".join(expected)
