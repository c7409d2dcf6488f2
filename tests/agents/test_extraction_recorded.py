"""Extraction on recorded answers of real models, against what was recorded without it."""

import gzip
import json
from pathlib import Path
from typing import Any

from autogen_codeact.agents.code_search import find_code
from autogen_codeact.agents.extraction import OUTPUT_LABELS, extract_code_blocks

SESSIONS = "mint/sessions.jsonl.gz"
IN_A_FENCE = {(929, 4)}
"""The code is in a fence; the environment of the recording knew tags only."""
NO_OUTPUT = {146}
"""The code is not valid Python and was never run, so the answer ends after it."""


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_answers_with_outputs_give_their_code_and_never_the_output(shared_data: Path) -> None:
    rows = read(shared_data / "tora/answers.jsonl.gz")
    answers = [answer for row in rows for answer in row["code"]]
    without_output = set()
    for number, answer in enumerate(answers):
        code = answer.partition("```python\n")[2].partition("\n```")[0]
        output = answer.partition("```output\n")[2].partition("```")[0]
        first, *others = extract_code_blocks(answer)
        assert (first.language, first.code) == ("python", f"{code}\n"), number
        assert [each.code for each in others if each.language in OUTPUT_LABELS] == [output] * bool(output)
        assert len(others) == bool(output)
        without_output |= set() if output else {number}
    assert without_output == NO_OUTPUT


def test_code_of_recorded_sessions_is_what_was_run_then(shared_data: Path) -> None:
    unrecorded = set()
    for number, session in enumerate(read(shared_data / SESSIONS)):
        for step, each in enumerate(session["steps"]):
            blocks = [b for b in extract_code_blocks(each["assistant"]) if b.complete]
            runnable = [block.code.strip() for block in blocks if block.language == "python"]
            if each["code"] is not None:
                assert runnable[0] == each["code"].strip(), (number, step)
            elif runnable:
                unrecorded.add((number, step))
    assert unrecorded == IN_A_FENCE


def test_recorded_sessions_hold_no_code_that_is_dropped_in_silence(shared_data: Path) -> None:
    texts = [each for session in read(shared_data / SESSIONS) for each in session["steps"]]
    for step in texts:
        found = find_code([step["assistant"]], {"python", "sh", "bash"}, tags_only=True)
        assert found.blocks or found.cut_off or not step["code"]
