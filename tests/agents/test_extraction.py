"""Blocks out of text: what models write, what CommonMark says, and what must not break it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from autogen_codeact.agents.code_search import unfenced_code
from autogen_codeact.agents.extraction import (
    DOCUMENT_LABELS,
    OUTPUT_LABELS,
    ExtractedBlock,
    extract_code_blocks,
    normalise_language,
)
from codeact_sandbox.types.languages import find_language, labels
from tests.cases import case

F = "```"
REFERENCE = MarkdownIt("commonmark")
quick = settings(max_examples=300, deadline=None, database=None)


def block(language: str, code: str, line: int, complete: bool = True) -> ExtractedBlock:
    return ExtractedBlock(language, code, line, complete)


def test_well_formed_fences_are_found() -> None:
    for text, expected in {
        "plain": (f"Run:\n\n{F}python\nprint(1)\n{F}\nDone.", [block("python", "print(1)\n", 4)]),
        "two": (f"{F}py\na\n{F}\n{F}sh\nb\n{F}\n", [block("python", "a\n", 2), block("sh", "b\n", 5)]),
        "no label": (f"{F}\na\n{F}", [block("", "a\n", 2)]),
        "tildes": ("~~~python\na\n~~~\n", [block("python", "a\n", 2)]),
        "tildes around backticks": (f"~~~python\n{F}\n~~~\n", [block("python", f"{F}\n", 2)]),
        "attributes": (f'{F}python title="x.py" {{1,3}}\na\n{F}', [block("python", "a\n", 2)]),
        "crlf": (f"a\r\n{F}python\r\nx\r\ny\r\n{F}\r\n", [block("python", "x\ny\n", 3)]),
        "lone cr": (f"{F}python\rx\r{F}\r", [block("python", "x\n", 2)]),
        "empty": (f"{F}python\n{F}\n", [block("python", "", 2)]),
        "code span": (f"{F}python print(1){F}\n", []),
        "in a sentence": (f"Use {F}python to open.\n", []),
        "output": (f"{F}OUTPUT\n18\n{F}\n", [block("output", "18\n", 2)]),
        "binary": (
            f"\0\ud800\n{F}python\n\0\ud800\x0c\x85\u2028x\n{F}",
            [block("python", "\0\ud800\x0c\x85\u2028x\n", 3)],
        ),
        "nothing": ("", []),
    }.values():
        with case(text, expected):
            assert extract_code_blocks(text) == expected


def test_fences_as_models_write_them_are_found() -> None:
    for text, expected in {
        "glued to the last line": (f"{F}python\na\nprint(1){F}\nDone.", [block("python", "a\nprint(1)", 2)]),
        "glued, then another": (
            f"{F}python\na{F}\nThen:\n{F}python\nb\n{F}\n",
            [block("python", "a", 2), block("python", "b\n", 5)],
        ),
        "glued, but closed properly": (f'{F}python\ns = """{F}\n"""\n{F}', [block("python", f's = """{F}\n"""\n', 2)]),
        "a code span is no glued fence": (f"{F}python\n# {F}x{F}\n", [block("python", f"# {F}x{F}\n", 2, False)]),
        "a stop sequence behind the fence": (
            f"Code:\n{F}py\na\n{F}<end_code>\nObservation: 1\n{F}py\nb\n {F} <end_code> ",
            [block("python", "a\n", 3), block("python", "b\n", 7)],
        ),
        "a stop sequence behind a glued fence": (f"{F}py\nprint(1){F}<end_code>", [block("python", "print(1)", 2)]),
        "a stop sequence in a block that shows it": (
            f'{F}python\ns = """\n{F}py\na\n{F}<end_code>\n"""\n{F}<end_code>',
            [block("python", f's = """\n{F}py\na\n{F}<end_code>\n"""\n', 2)],
        ),
        "no other word ends a block": (
            f"{F}py\na\n{F}<end>\n",
            [block("python", "a\n", 2, False), block("<end>", "", 4, False)],
        ),
        "glued with too short a fence": (f"{F}`python\na{F}\n", [block("python", f"a{F}\n", 2, False)]),
        "under a list marker": (f"- {F}python\n  a\n    b\n  {F}\n", [block("python", "a\n  b\n", 2)]),
        "in a list item": (f"1. Do:\n   {F}sh\n   a\n   {F}\n2. b", [block("sh", "a\n", 3)]),
        "deep in a list": (f"     {F}python\n     a\n     {F}\n", [block("python", "a\n", 2)]),
        "fence indented, code not": (
            f"   {F}python\nif a:\n  b\n   {F}\n",
            [block("python", "if a:\n  b\n", 2)],
        ),
        "flush string in indented code": (
            f'  {F}python\n  s = """\nx\n"""\n  {F}\n',
            [block("python", 's = """\nx\n"""\n', 2)],
        ),
        "tabs": (f"\t{F}python\n\ta\n\t\tb\n\t{F}\n", [block("python", "a\n\tb\n", 2)]),
        "half a tab": (f"- {F}python\n\ta\n  {F}\n", [block("python", "  a\n", 2)]),
        "quoted": (f"> {F}python\n> a\n>   b\n> {F}\nc", [block("python", "a\n  b\n", 2)]),
        "quoted twice, in a list": (f"x\n- > > {F}sh\n  > > a\n  > > {F}\n", [block("sh", "a\n", 3)]),
        "the quote ends": (
            f"> {F}python\n> a\n\n{F}sh\nb\n{F}",
            [block("python", "a\n", 2, False), block("sh", "b\n", 5)],
        ),
        "in an HTML comment": (f"<!--\n{F}python\na\n{F}\n-->\n{F}sh\nb\n{F}", [block("sh", "b\n", 7)]),
        "a comment without an end": (f"<!--\n{F}python\na\n{F}\n", [block("python", "a\n", 3)]),
        "underlines of a traceback": ("    a + b\n    ~~~~^^^^\nTypeError\n", []),
    }.values():
        with case(text, expected):
            assert extract_code_blocks(text) == expected


def test_unclosed_fence_is_incomplete() -> None:
    for text, expected in {
        "truncated": (f"{F}python\nprint(1", [block("python", "print(1", 2, False)]),
        "truncated at the fence": (f"{F}python", [block("python", "", 1, False)]),
        "never closed, another follows": (
            f"{F}python\na\n\n{F}python\nb\n{F}\n",
            [block("python", "a\n\n", 2, False), block("python", "b\n", 5)],
        ),
        "a stray closing fence": (
            f"{F}sh\na\n{F}\n{F}\n\n{F}python\nb\n{F}\n",
            [block("sh", "a\n", 2), block("", "\n", 5, False), block("python", "b\n", 7)],
        ),
        "several nested in one never closed": (
            f"{F}python\na\n{F}sh\nb\n{F}\n{F}r\nc\n{F}\n{F}js\nd",
            [
                block("python", "a\n", 2, False),
                block("sh", "b\n", 4),
                block("r", "c\n", 7),
                block("javascript", "d", 10, False),
            ],
        ),
        "output never closed": (
            f"{F}output\n1\n{F}python\na\n{F}\n",
            [block("output", f"1\n{F}python\na\n{F}\n", 2, False)],
        ),
        "a document never closed": (
            f"{F}md\n# T\n{F}python\na\n{F}\n",
            [block("markdown", f"# T\n{F}python\na\n{F}\n", 2, False)],
        ),
    }.values():
        with case(text, expected):
            assert extract_code_blocks(text) == expected


def test_a_block_that_shows_fences_is_one_block() -> None:
    for outer in ["markdown", "md", "python", ""]:
        with case(outer):
            body = f"# Read me\n{F}python\na\n{F}\n- {F}sh\n  b\n  {F}\nend\n"
            assert extract_code_blocks(f"{F}{outer}\n{body}{F}\nx") == [block(normalise_language(outer), body, 2)]


def test_longer_fence_contains_shorter_ones() -> None:
    body = f"{F}python\na\n{F}\n{F}\nnever closed\n"
    assert extract_code_blocks(f"{F}`text\n{body}{F}`\n") == [block("text", body, 2)]


def test_execute_tags_are_found() -> None:
    for text, expected in {
        "lines": ("Now\n<execute>\n\nif a:\n    b\n\n</execute>\nc", [block("python", "if a:\n    b", 4)]),
        "one line": ("<execute> print(1) </execute>", [block("python", "print(1)", 1)]),
        "begins on the tag's line": ("<execute> a\nb\n</execute>", [block("python", "a\nb", 1)]),
        "after a thought": ("<thought> x </thought> <execute>a</execute>", [block("python", "a", 1)]),
        "several": ("<execute>a</execute> <execute>b</execute>", [block("python", "a", 1), block("python", "b", 1)]),
        "other tags": (
            "<execute_bash>\nls\n</execute_bash>\n<execute_ipython>\na\n</execute_ipython>",
            [block("bash", "ls", 2), block("python", "a", 5)],
        ),
        "indented": ("- x\n  <execute>\n  if a:\n    b\n  </execute>", [block("python", "if a:\n  b", 3)]),
        "indented, code not": (" <execute>\nif a:\n b\n </execute>", [block("python", "if a:\n b", 2)]),
        "a fence inside": (f"<execute>\n{F}python\na\n{F}\n</execute>", [block("python", "a\n", 3)]),
        "a fence inside, no label": (f"<execute>\n{F}\na\n{F}\n</execute>", [block("python", "a\n", 3)]),
        "fences in the code": (
            f"<execute>\ns = '''\n{F}sh\nb\n{F}\n'''\n</execute>",
            [block("python", f"s = '''\n{F}sh\nb\n{F}\n'''", 2)],
        ),
        "inside a fence": (f"{F}text\n<execute>a</execute>\n{F}", [block("text", "<execute>a</execute>\n", 2)]),
        "never closed": ("<execute>\na\n", [block("python", "a", 2, False)]),
        "never closed, another follows": (
            "<execute>\na\n<execute>\nb\n</execute>",
            [block("python", "a", 2, False), block("python", "b", 4)],
        ),
        "never closed, with a fence": (f"<execute>\n{F}python\na\n{F}\n", [block("python", "a\n", 3, False)]),
        "spoken of": (f"I use <execute> tags.\n{F}sh\na\n{F}\n", [block("sh", "a\n", 3)]),
        "spoken of, then used": ("Code in <execute> tags:\n<execute>\na\n</execute>", [block("python", "a", 3)]),
        "in backticks": ("Use `<execute>` here:\n<execute>a</execute>", [block("python", "a", 2)]),
        "empty": ("<execute>\n</execute>", [block("python", "", 2)]),
        "the word in a string": (
            "<execute>\nprint('<execute>')\n</execute>",
            [block("python", "print('<execute>')", 2)],
        ),
    }.values():
        with case(text, expected):
            assert extract_code_blocks(text) == expected


def test_code_in_thoughts_is_not_looked_at() -> None:
    for text in [
        "<think>\n```python\nno()\n```\n</think>\n```python\nyes()\n```",
        "\n<thinking>```python\nno()\n```</thinking>\n\n```python\nyes()\n```",
        "<Thought> <execute>no()</execute> </Thought>\n<Execute>\nyes()\n</Execute>",
        "The user wants\n```python\nno()\n```\n</think>\n\n```python\nyes()\n```",
        "```python\nyes()\n```\n<think>```</think>",
    ]:
        with case(text):
            assert [each.code.strip() for each in extract_code_blocks(text)][:1] == ["yes()"]
    assert unfenced_code("<think>\n>>> no()\n</think>\nIt is 3.") == ""
    block = "```python\nprint('</think>')\n```"
    assert [each.code for each in extract_code_blocks(block)] == ["print('</think>')\n"]
    assert [each.line for each in extract_code_blocks(f"<think>\n\n</think>\n{block}")] == [5]


def test_labels_of_a_language_are_normalised() -> None:
    for name, spellings in {
        "python": [
            *["py", "Python", "PYTHON3", "python3.11", "py3", "{python}", "python:a.py", "ipython", "ipython3"],
            "{.python .numbers}",
        ],
        "python2": ["python2"],
        "typescript": ["ts", "TypeScript"],
        "sh": ["sh", "shell", "Shell"],
        "bash": ["bash", "Bash", "{bash, echo=FALSE}"],
        "javascript": ["js", "javascript", "node", "JS"],
        "": ["", "  ", "{}", "\n"],
        "c++": ["c++", "C++"],
        "pyx": ["pyx"],
        "powershell": ["powershell"],
        "output": ["output", "Output:", "{output}"],
    }.items():
        with case(name):
            assert {normalise_language(label) for label in spellings} == {name}


def test_agents_and_executors_know_the_same_labels() -> None:
    for label in labels():
        assert normalise_language(label) == getattr(find_language(label), "name", None)


def test_labels_that_are_not_run_are_in_the_form_that_blocks_carry() -> None:
    for label in OUTPUT_LABELS | DOCUMENT_LABELS:
        assert extract_code_blocks(f"{F}{label.upper()}\nx\n{F}") == [block(label, "x\n", 2)]
    assert not (OUTPUT_LABELS | DOCUMENT_LABELS) & {"python", "sh", "bash", "javascript", ""}


# CommonMark

# Properties

code_lines = st.lists(
    st.text("ab \t<>-*1.#'\"()`~", max_size=8).filter(lambda s: F not in s and "~~~" not in s), max_size=4
)
containers = st.lists(st.sampled_from([("> ", "> "), ("- ", "  "), ("10. ", "    ")]), max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Paragraphs, and closed fences in quotes and lists, as CommonMark wants them written."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        fence = draw(st.sampled_from([F, F + "`", "~~~", "~~~~~"]))
        lines = [fence + draw(st.sampled_from(["", "python", " sh x=1"])), *draw(code_lines), fence]
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
    "deep quotes": ("> " * 20 + f"{F}sh\n" + "> " * 20 + f"ls\n{'> ' * 20}{F}\n", 1),
    "bottomless quotes": ("> " * 1000 + f"{F}sh\n", 0),
}


@pytest.mark.timeout(120)  # all cases together
def test_a_megabyte_is_read_in_time() -> None:
    for kind, (unit, each) in MANY.items():
        with case(kind):
            times = 1_000_000 // len(unit)
            assert len(extract_code_blocks(unit * times)) == each * times


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
    opened = f"{F}a\n" * 50_000
    assert len(extract_code_blocks(opened + f"{F}\n" * 50_000)) == 1
    assert len(extract_code_blocks(opened + f"{F}\n" * 49_999)) == 2
