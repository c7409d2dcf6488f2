"""Programs written for upstream's classes run after a change of their imports, and of nothing else.

`DOCSTRINGS` has every example of the installed packages around the two classes: how it runs here, as a user would run it, or
why it is left out. A release with a new example fails a test.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests import processes
from tests.openai_server import OpenAIServer, Reply

from .examples import Example, installed_examples, swap_imports, transcript

EXAMPLES = installed_examples()
NOISE = ("Resolved model mismatch", "Pydantic serializer warnings")
"""Warnings of AutoGen's model client and of the OpenAI SDK that no class here has a part in."""
ALLOWED = '{"approved": true, "reason": "It only prints."}'


@dataclass(frozen=True)
class Entry:
    """One example.

    Args:
        left_out: Why it does not run here, or empty when it runs.
        replies: What the model says, in order; None takes what the example itself shows that the model said.
        stdin: What the person at the keyboard types.
        prints: What standard output must contain, in this order.
        refused: What the error says on an engine that lacks what the example asks for.
    """

    left_out: str = ""
    replies: tuple[str, ...] | None = ()
    stdin: str = ""
    prints: tuple[str, ...] = ()
    refused: str = ""


NO_CLASS = "uses neither class"
EXTRA = "needs markitdown and playwright, which this project does not depend on"

DOCSTRINGS: dict[str, Entry] = {
    "CodeExecutorAgent#1": Entry(
        stdin="maybe\ny\n",
        prints=(
            "Code execution approval requested:",
            "print('Hello world')",
            "Please enter 'y' for yes or 'n' for no.",
            "source='code_executor'",
            "content='Hello world\\n'",
        ),
    ),
    "CodeExecutorAgent#2": Entry(
        left_out="needs an engine with a GPU; that it gets as far as asking the engine for one is checked",
        refused="gpu",
    ),
    "CodeExecutorAgent#3": Entry(replies=None),
    "CodeExecutorAgent#4": Entry(replies=None),
    "DockerJupyterCodeExecutor#1": Entry(left_out=NO_CLASS),
    "DockerJupyterCodeExecutor#2": Entry(left_out=NO_CLASS),
    "DockerJupyterCodeExecutor#3": Entry(left_out=NO_CLASS),
    "DockerJupyterCodeExecutor#4": Entry(left_out="needs a network: its server builds a Jupyter image from a registry"),
    "JupyterCodeExecutor#1": Entry(left_out=NO_CLASS),
    "JupyterCodeExecutor#2": Entry(left_out=NO_CLASS),
    "JupyterCodeExecutor#3": Entry(prints=("source='code_executor'", "content='Hello world\\n'")),
    "MagenticOne#1": Entry(left_out=f"{NO_CLASS} (MagenticOne picks upstream's executor itself)"),
    "MagenticOne#2": Entry(left_out=EXTRA),
    "MagenticOne#3": Entry(left_out=EXTRA),
    "PythonCodeExecutionTool#1": Entry(left_out=NO_CLASS),
}


@dataclass(frozen=True)
class Run:
    """What a program did."""

    status: int
    out: str
    err: str
    unsaid: int


def run(code: str, folder: Path, *, replies: Sequence[Reply | str] = (), stdin: str = "") -> Run:
    """Run a program written for upstream with its imports moved here."""
    program = folder / "example.py"
    program.write_text(swap_imports(code), encoding="utf-8")
    with OpenAIServer(list(replies)) as model:
        environment = {**os.environ, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "not-a-key"}
        done = processes.run([str(program)], cwd=folder, env=environment, text=stdin)
    return Run(done.returncode, done.stdout, done.stderr, len(model.script))


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
