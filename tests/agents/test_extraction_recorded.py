"""Extraction on recorded answers of real models, against counts that are made without it."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.agents.extraction import OUTPUT_LABELS, extract_code_blocks


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def fence_lines(text: str) -> list[int]:
    """The numbers of the lines that begin with a fence, at whatever indentation."""
    return [n for n, line in enumerate(text.split("\n"), 1) if line.lstrip(" \t>").startswith(("```", "~~~"))]


# ToRA: one python block each, then one output block

NO_OUTPUT_FENCE = {146: "the code is not valid Python and was never run, so the answer ends after it"}


def test_each_tora_answer_gives_its_python_block_and_never_its_output(shared_data: Path) -> None:
    rows = read(shared_data / "tora/answers.jsonl.gz")
    answers = [answer for row in rows for answer in row["code"]]
    assert len(answers) == len(rows) == 600
    without_output = set()
    for number, answer in enumerate(answers):
        code = answer.partition("```python\n")[2].partition("\n```")[0]
        assert code, number
        output = answer.partition("```output\n")[2].partition("```")[0]
        blocks = extract_code_blocks(answer)
        assert [b.code for b in blocks if b.language not in OUTPUT_LABELS] == [code + "\n"], number
        assert blocks[0].language == "python"
        assert [(b.language, b.code) for b in blocks[1:]] == ([("output", output)] if output else []), number
        assert all(b.complete for b in blocks)
        if not output:
            without_output.add(number)
    assert without_output == set(NO_OUTPUT_FENCE)


# AutoGen's notebooks: messages of many models and programs

NOTEBOOK_DIFFERENCES = {
    61: "two lines of a traceback underline an expression with tildes",
    142: "the last block is cut off: an opening fence, and nothing that closes it",
}


def test_each_fenced_block_of_the_notebooks_is_found(shared_data: Path) -> None:
    messages = read(shared_data / "autogen-notebooks/messages.jsonl.gz")
    assert len(messages) == 761
    differing, found = set(), 0
    for number, message in enumerate(messages):
        fences = fence_lines(message["content"])
        blocks = extract_code_blocks(message["content"])
        found += len(blocks)
        if len(fences) != 2 * len(blocks) or not all(b.complete for b in blocks):
            differing.add(number)
            continue
        lines = message["content"].split("\n")
        between = [
            "\n".join([*lines[a:b], ""]) for a, b in zip(fences[::2], [f - 1 for f in fences[1::2]], strict=True)
        ]
        assert [b.code for b in blocks] == between, number
        assert [b.line for b in blocks] == [a + 1 for a in fences[::2]], number
    assert differing == set(NOTEBOOK_DIFFERENCES)
    assert found == sum(m["fenced_blocks"] for m in messages) + 1 == 221


def test_the_two_notebook_differences_are_what_their_reasons_say(shared_data: Path) -> None:
    messages = read(shared_data / "autogen-notebooks/messages.jsonl.gz")
    assert extract_code_blocks(messages[61]["content"]) == []
    assert "~~~^" in messages[61]["content"]
    blocks = extract_code_blocks(messages[142]["content"])
    assert [b.complete for b in blocks] == [True] * 7 + [False]
    assert messages[142]["content"].endswith(blocks[-1].code)


# MINT: CodeAct sessions, code in tags

SPOKEN_OF = {
    (462, 1): "two sentences in the thoughts say 'inside <execute> tags'",
    (492, 1): "a sentence in a thought says 'the proper <execute> tags'",
}
CUT_OFF = {
    (755, 0): "the answer ends within the code",
    (866, 0): "the answer ends within the code",
    (866, 1): "the answer ends within the code",
    (1228, 0): "the answer ends within the code",
}
IN_THOUGHTS = {(882, 0): "a fenced block in the thought, which is no code to run"}
UNRECORDED_CODE = {(929, 4): "the code is in a fence; the environment of the recording knew tags only"}

Step = tuple[tuple[int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def steps(shared_data: Path) -> list[Step]:
    sessions = read(shared_data / "mint/sessions.jsonl.gz")
    numbered: Iterator[Step] = (
        ((s, n), step) for s, session in enumerate(sessions) for n, step in enumerate(session["steps"])
    )
    return list(numbered)


def test_each_tag_and_fence_of_the_sessions_is_found(steps: list[Step]) -> None:
    assert len(steps) == 4238
    differing, cut_off, found = set(), set(), 0
    for key, step in steps:
        text = step["assistant"]
        blocks = extract_code_blocks(text)
        found += len(blocks)
        if len(blocks) != text.count("<execute>") + len(fence_lines(text)) / 2:
            differing.add(key)
        if not all(b.complete for b in blocks):
            cut_off.add(key)
    assert differing == {*SPOKEN_OF, *IN_THOUGHTS}
    assert cut_off == set(CUT_OFF)
    tags, spoken_of, fenced = 2660, 3, 2
    assert found == tags - spoken_of + fenced


def test_the_code_of_the_sessions_is_what_was_recorded(steps: list[Step]) -> None:
    differing, unrecorded, agreeing = set(), set(), 0
    for key, step in steps:
        runnable = [b.code for b in extract_code_blocks(step["assistant"]) if b.complete and b.language == "python"]
        if step["code"] is None:
            unrecorded |= {key} if runnable else set()
        elif runnable and runnable[0].strip() == step["code"].strip():
            agreeing += 1
        else:
            differing.add(key)
            assert step["code"].strip() in [code.strip() for code in runnable], key
    assert differing == set()
    assert unrecorded == set(UNRECORDED_CODE)
    assert agreeing == sum(step["code"] is not None for _, step in steps) > 2000
