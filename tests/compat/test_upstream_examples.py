"""Programs written for upstream's classes run after a change of their imports, and of nothing else."""

import re
from pathlib import Path

import docker
import pytest

from .examples import Example, installed_examples, transcript
from .harness import Run, run
from .inventory import DOCSTRINGS, Entry

EXAMPLES = installed_examples()
NOISE = ("Resolved model mismatch", "Pydantic serializer warnings")
"""Warnings of AutoGen's model client and of the OpenAI SDK that no class here has a part in."""
ALLOWED = '{"approved": true, "reason": "It only prints."}'


def names(table: dict[str, Entry]) -> list[str]:
    return [name for name, entry in table.items() if not entry.left_out]


def replies_shown(example: Example) -> list[str]:
    """What the docstring shows that the model said, and the permission that its model-based approval asks for."""
    assert example.shown is not None
    _, written, _, *reflection = [text for _, text in transcript(example.shown)]
    asks_for_approval = "json_output=ApprovalResponse" in example.code
    return [written, *([ALLOWED] if asks_for_approval else []), *reflection]


def check(done: Run, entry: Entry) -> None:
    """It ended well, printed what it should in that order, complained of nothing else, and heard the whole model."""
    assert done.status == 0, done.err
    position = 0
    for text in entry.prints:
        position = done.out.find(text, position)
        assert position >= 0, f"{text!r} is not in, or out of order in:\n{done.out}"
    assert done.unsaid == 0
    complaints = [line for line in done.err.splitlines() if re.search(r"Warning:|Error|Traceback|never", line)]
    complaints = [line for line in complaints if not any(noise in line for noise in NOISE)]
    assert complaints == []


def test_every_example_in_the_installed_docstrings_is_in_the_table():
    assert sorted(EXAMPLES) == sorted(DOCSTRINGS)


@pytest.mark.parametrize("name", names(DOCSTRINGS))
def test_a_docstring_example_runs(name: str, tmp_path: Path):
    entry, example = DOCSTRINGS[name], EXAMPLES[name]
    replies = replies_shown(example) if entry.replies is None else entry.replies

    done = run(example.code, tmp_path, replies=replies, stdin=entry.stdin)

    check(done, entry)
    if example.shown is not None:
        assert transcript(done.out) == transcript(example.shown)


@pytest.mark.parametrize("name", [name for name, entry in DOCSTRINGS.items() if entry.refused])
def test_an_example_that_needs_more_than_the_engine_has_says_so(name: str, tmp_path: Path):
    if "nvidia" in docker.from_env().info()["Runtimes"]:
        pytest.skip("this engine may have it")

    done = run(EXAMPLES[name].code, tmp_path)

    assert done.status != 0
    assert DOCSTRINGS[name].refused in done.err.splitlines()[-1].lower(), done.err
