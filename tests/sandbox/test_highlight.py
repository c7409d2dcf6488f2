"""How code is read for its colours, and carriage returns in output."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeact_sandbox.highlight import pieces
from codeact_sandbox.types.text import apply_carriage_returns

LANGUAGES = ["python", "bash", "javascript", "json", "unknown"]


def coloured(code, language):
    return [piece for piece in pieces(code, language) if piece[0]]


def test_tokens_have_their_classes():
    code = "class A:\n    def f(self, x=1.5e3, s='a\\'b'):  # \"c\n"
    code += '        return f"{x}" + """two\n  if\\""" lines""" if x else None\n'
    assert coloured(code, "Py") == [
        *(("k", "class"), ("nf", "A"), ("k", "def"), ("nf", "f"), ("nb", "self"), ("m", "1.5e3"), ("s", "'a\\'b'")),
        *(("c", '# "c'), ("k", "return"), ("s", '"{x}"'), ("s", '"""two'), ("s", '  if\\""" lines"""')),
        *(("k", "if"), ("k", "else"), ("k", "None")),
    ]
    assert coloured("if [ $# -gt 1 ]; then echo 'it'\\''s' # c 'd\nfi", "sh") == [
        *(
            ("k", "if"),
            ("m", "1"),
            ("k", "then"),
            ("nb", "echo"),
            ("s", "'it'"),
            ("s", "'s'"),
            ("c", "# c 'd"),
            ("k", "fi"),
        )
    ]
    assert coloured("/* a\n\\*/ const x = `b\nc` // d", "ts") == [
        *(("c", "/* a"), ("c", "\\*/"), ("k", "const"), ("s", "`b"), ("s", "c`"), ("c", "// d"))
    ]
    assert coloured('{"a": [1, true]}', "json") == [("s", '"a"'), ("m", "1"), ("k", "true")]
    assert coloured("if x: pass", "unknown") == []


@given(st.text(alphabet=st.sampled_from("\"'`\\/*#-+@<ai1 \n\r\t\0\u2028é"), max_size=200), st.sampled_from(LANGUAGES))
def test_the_pieces_are_the_code(code, language):
    found = pieces(code, language)
    assert "".join(text for _, text in found) == code
    assert all(text for _, text in found)
    assert [kind for kind, _ in found[1:]] != [kind for kind, _ in found[:-1]] or len(found) < 2


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
