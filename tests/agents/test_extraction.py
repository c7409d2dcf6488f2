"""Blocks out of text: what models write, what CommonMark says, and what must not break it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from autogen_codeact.agents.extraction import (
    DOCUMENT_LABELS,
    OUTPUT_LABELS,
    ExtractedBlock,
    extract_code_blocks,
    normalise_language,
)

F = "```"
REFERENCE = MarkdownIt("commonmark")
quick = settings(max_examples=100, deadline=None, database=None)


def block(language: str, code: str, line: int, complete: bool = True) -> ExtractedBlock:
    return ExtractedBlock(language, code, line, complete)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"Run:\n\n{F}python\nprint(1)\n{F}\nDone.", [block("python", "print(1)\n", 4)], id="plain"),
        pytest.param(f"{F}\na\n{F}", [block("", "a\n", 2)], id="no label"),
        pytest.param("~~~python\na\n~~~\n", [block("python", "a\n", 2)], id="tildes"),
        pytest.param(f"~~~python\n{F}\n~~~\n", [block("python", f"{F}\n", 2)], id="tildes around backticks"),
        pytest.param(f'{F}python title="x.py" {{1,3}}\na\n{F}', [block("python", "a\n", 2)], id="attributes"),
        pytest.param(f"a\r\n{F}python\r\nx\r\ny\r\n{F}\r\n", [block("python", "x\ny\n", 3)], id="crlf"),
        pytest.param(f"{F}python\n{F}\n", [block("python", "", 2)], id="empty"),
        pytest.param(f"{F}python print(1){F}\n", [], id="code span"),
        pytest.param(f"{F}OUTPUT\n18\n{F}\n", [block("output", "18\n", 2)], id="output"),
        pytest.param(
            f"\0\ud800\n{F}python\n\0\ud800\x0c\x85\u2028x\n{F}",
            [block("python", "\0\ud800\x0c\x85\u2028x\n", 3)],
            id="binary",
        ),
        pytest.param("", [], id="nothing"),
    ],
)
def test_well_formed_fences_are_found(text: str, expected: Any) -> None:
    assert extract_code_blocks(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"{F}python\na\nprint(1){F}\nDone.", [block("python", "a\nprint(1)", 2)], id="glued to the last line"
        ),
        pytest.param(
            f"{F}python\na{F}\nThen:\n{F}python\nb\n{F}\n",
            [block("python", "a", 2), block("python", "b\n", 5)],
            id="glued, then another",
        ),
        pytest.param(
            f"Code:\n{F}py\na\n{F}<end_code>\nObservation: 1\n{F}py\nb\n {F} <end_code> ",
            [block("python", "a\n", 3), block("python", "b\n", 7)],
            id="a stop sequence behind the fence",
        ),
        pytest.param(f"- {F}python\n  a\n    b\n  {F}\n", [block("python", "a\n  b\n", 2)], id="under a list marker"),
        pytest.param(f"1. Do:\n   {F}sh\n   a\n   {F}\n2. b", [block("sh", "a\n", 3)], id="in a list item"),
        pytest.param(f"     {F}python\n     a\n     {F}\n", [block("python", "a\n", 2)], id="deep in a list"),
        pytest.param(f"\t{F}python\n\ta\n\t\tb\n\t{F}\n", [block("python", "a\n\tb\n", 2)], id="tabs"),
        pytest.param(f"> {F}python\n> a\n> {F}\n{F}sh\nb\n{F}", [block("sh", "b\n", 5)], id="quoted"),
        pytest.param(f"<!--\n{F}python\na\n{F}\n-->\n{F}sh\nb\n{F}", [block("sh", "b\n", 7)], id="in an HTML comment"),
        pytest.param(f"<!--\n{F}python\na\n{F}\n", [block("python", "a\n", 3)], id="a comment without an end"),
        pytest.param("    a + b\n    ~~~~^^^^\nTypeError\n", [], id="underlines of a traceback"),
    ],
)
def test_fences_as_models_write_them_are_found(text: str, expected: Any) -> None:
    assert extract_code_blocks(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{F}python\nprint(1", [block("python", "print(1", 2, False)], id="truncated"),
        pytest.param(f"{F}python", [block("python", "", 1, False)], id="truncated at the fence"),
        pytest.param(
            f"{F}python\na\n\n{F}python\nb\n{F}\n",
            [block("python", "a\n\n", 2, False), block("python", "b\n", 5)],
            id="never closed, another follows",
        ),
        pytest.param(
            f"{F}sh\na\n{F}\n{F}\n\n{F}python\nb\n{F}\n",
            [block("sh", "a\n", 2), block("", "\n", 5, False), block("python", "b\n", 7)],
            id="a stray closing fence",
        ),
        pytest.param(
            f"{F}md\n# T\n{F}python\na\n{F}\n",
            [block("markdown", f"# T\n{F}python\na\n{F}\n", 2, False)],
            id="a document never closed",
        ),
    ],
)
def test_unclosed_fence_is_incomplete(text: str, expected: Any) -> None:
    assert extract_code_blocks(text) == expected


@pytest.mark.parametrize("outer", ["markdown", "md", "python", ""])
def test_a_block_that_shows_fences_is_one_block(outer: str) -> None:
    body = f"# Read me\n{F}python\na\n{F}\n- {F}sh\n  b\n  {F}\nend\n"
    assert extract_code_blocks(f"{F}{outer}\n{body}{F}\nx") == [block(normalise_language(outer), body, 2)]


def test_longer_fence_contains_shorter_ones() -> None:
    body = f"{F}python\na\n{F}\n{F}\nnever closed\n"
    assert extract_code_blocks(f"{F}`text\n{body}{F}`\n") == [block("text", body, 2)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "Now\n<execute>\n\nif a:\n    b\n\n</execute>\nc", [block("python", "if a:\n    b", 4)], id="lines"
        ),
        pytest.param("<execute> print(1) </execute>", [block("python", "print(1)", 1)], id="one line"),
        pytest.param(
            "<execute>a</execute> <execute>b</execute>",
            [block("python", "a", 1), block("python", "b", 1)],
            id="several",
        ),
        pytest.param(
            "<execute_bash>\nls\n</execute_bash>\n<execute_ipython>\na\n</execute_ipython>",
            [block("bash", "ls", 2), block("python", "a", 5)],
            id="other tags",
        ),
        pytest.param(
            "- x\n  <execute>\n  if a:\n    b\n  </execute>", [block("python", "if a:\n  b", 3)], id="indented"
        ),
        pytest.param(f"<execute>\n{F}python\na\n{F}\n</execute>", [block("python", "a\n", 3)], id="a fence inside"),
        pytest.param(
            f"{F}text\n<execute>a</execute>\n{F}", [block("text", "<execute>a</execute>\n", 2)], id="inside a fence"
        ),
        pytest.param("<execute>\na\n", [block("python", "a", 2, False)], id="never closed"),
        pytest.param(
            "<execute>\na\n<execute>\nb\n</execute>",
            [block("python", "a", 2, False), block("python", "b", 4)],
            id="never closed, another follows",
        ),
        pytest.param(f"I use <execute> tags.\n{F}sh\na\n{F}\n", [block("sh", "a\n", 3)], id="spoken of"),
        pytest.param("Use `<execute>` here:\n<execute>a</execute>", [block("python", "a", 2)], id="in backticks"),
        pytest.param("<execute>\n</execute>", [block("python", "", 2)], id="empty"),
    ],
)
def test_execute_tags_are_found(text: str, expected: Any) -> None:
    assert extract_code_blocks(text) == expected


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        (
            "python",
            [
                *["py", "Python", "PYTHON3", "python3.11", "py3", "{python}", "python:a.py", "ipython", "ipython3"],
                "{.python .numbers}",
            ],
        ),
        ("python2", ["python2"]),
        ("typescript", ["ts", "TypeScript"]),
        ("sh", ["sh", "shell", "Shell"]),
        ("bash", ["bash", "Bash", "{bash, echo=FALSE}"]),
        ("javascript", ["js", "javascript", "node", "JS"]),
        ("", ["", "  ", "{}", "\n"]),
        ("c++", ["c++", "C++"]),
        ("pyx", ["pyx"]),
        ("powershell", ["powershell"]),
        ("output", ["output", "Output:", "{output}"]),
    ],
)
def test_labels_of_a_language_are_normalised(name: str, spellings: Any) -> None:
    assert {normalise_language(label) for label in spellings} == {name}


def test_labels_that_are_not_run_are_in_the_form_that_blocks_carry() -> None:
    for label in OUTPUT_LABELS | DOCUMENT_LABELS:
        assert extract_code_blocks(f"{F}{label.upper()}\nx\n{F}") == [block(label, "x\n", 2)]
    assert not (OUTPUT_LABELS | DOCUMENT_LABELS) & {"python", "sh", "bash", "javascript", ""}


# CommonMark

# Properties

code_lines = st.lists(
    st.text("ab \t<>-*1.#'\"()`~", max_size=8).filter(lambda s: F not in s and "~~~" not in s), max_size=4
)
containers = st.lists(st.sampled_from([("- ", "  "), ("10. ", "    ")]), max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Paragraphs, and closed fences in lists, as CommonMark wants them written."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        fence = draw(st.sampled_from([F, F + "`", "~~~", "~~~~~"]))
        lines = [fence + draw(st.sampled_from(["", "text", " json x=1"])), *draw(code_lines), fence]
        for first, rest in draw(containers):
            lines = [first + lines[0], *(rest + line for line in lines[1:])]
        parts.append("\n".join(lines))
    return "\n\nSome words.\n\n".join(parts) + "\n"


@quick
@given(documents())
def test_well_formed_documents_read_as_markdown_it_reads_them(document: str) -> None:
    expected = [t.content for t in REFERENCE.parse(document) if t.type == "fence"]
    assert [b.code for b in extract_code_blocks(document)] == expected
    assert all(b.complete for b in extract_code_blocks(document))


pieces = st.sampled_from(
    f"{F}|````|~~~|`|python|output|markdown|x = 1|\n|\n|\n|> |- |1. |   |\t|\r|\0|\ud800|\u2028"
    "|<execute>|</execute>|<execute_bash>|<!--|-->".split("|")
)
anything = st.one_of(st.text(st.characters()), st.lists(pieces, max_size=60).map("".join))


@quick
@given(anything)
def test_any_text_is_accepted(text: str) -> None:
    blocks = extract_code_blocks(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [b.line for b in blocks] == sorted(b.line for b in blocks)
    for found in blocks:
        assert 1 <= found.line <= len(lines)
        first = found.code.partition("\n")[0].strip(" \t")
        assert first in lines[found.line - 1].replace("\t", "    ") or first in lines[found.line - 1]


code = st.text(st.characters(exclude_characters="`~\r"))


@quick
@given(
    code, st.lists(st.sampled_from(["", "Some words.", "- item", "> quote"]), max_size=5), st.sampled_from([F, "~~~"])
)
def test_code_in_a_fence_is_returned_unchanged(code: str, above: list[str], fence: str) -> None:
    text = "\n".join([*above, "", f"{fence}python", code, fence, "below"])
    assert extract_code_blocks(text) == [block("python", code + "\n", len(above) + 3)]
    assert text.split("\n")[len(above) + 2] == code.partition("\n")[0]


# Size: each would take minutes or for ever if time were not linear

MANY = {
    "answers": (f"Some words of a model, as it explains.\n\n{F}python\nfor i in range(3):\n    print(i)\n{F}\n\n", 1),
    "list items with fences": (f"- Do this:\n  {F}sh\n  ls\n  {F}\n", 1),
    "plain list items": ("- a\n", 0),
    "never closed": (f"{F}python\nprint(1)\n", 1),
    "glued": (f"{F}python\nprint(1){F}\n\nAnd:\n", 1),
    "tags": ("<execute>\nprint(1)\n</execute>\n", 1),
    "tags never closed": ("<execute>\nprint(1)\n", 1),
    "tags on one line": ("<execute>1</execute> ", 1),
    "tags spoken of": ("the <execute> tag ", 0),
    "code spans on one line": (f"{F}x{F} ", 0),
    "comments": ("<!-- a\n", 0),
    "deep quotes": ("> " * 1000 + f"{F}sh\n", 0),
}


@pytest.mark.parametrize(("unit", "blocks"), MANY.values(), ids=MANY.keys())
def test_long_text_is_read_in_linear_time(unit: str, blocks: int) -> None:
    times = 300_000 // len(unit)
    assert len(extract_code_blocks(unit * times)) == blocks * times


def test_tags_are_distinguished_from_fences() -> None:
    found = extract_code_blocks(
        f"{F}python\na\n{F}\n<execute>\nb\n</execute>\n<execute>\n{F}python\nc\n{F}\n</execute>\n<execute>\nd"
    )
    assert [(block.code.strip(), block.tagged) for block in found] == [
        ("a", False),
        ("b", True),
        ("c", True),
        ("d", True),
    ]


def test_fences_nested_ever_deeper_are_read() -> None:
    opened = f"{F}a\n" * 20_000
    assert len(extract_code_blocks(opened + f"{F}\n" * 20_000)) == 1
    assert len(extract_code_blocks(opened + f"{F}\n" * 19_999)) == 2
