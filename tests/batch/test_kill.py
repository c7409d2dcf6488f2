"""A batch whose process is killed at any moment ends as one that was never interrupted."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.batch.killed_batch import TASKS
from tests.batch.support import asked, lines, number_of, once
from tests.openai_server import OpenAIServer

pytestmark = pytest.mark.more

ROOT = str(Path(__file__).parents[2])
PROGRAM = f"import sys; sys.path.insert(0, {ROOT!r}); from tests.batch.killed_batch import begin; begin()"
POINTS = (
    *("after:log:boundary:0", "after:log:block_finished:0", "before:results:results:0"),
    *("torn:log:run_started:1", "after:log:run_started:1", "torn:log:model_call_finished:1"),
    *("after:log:model_call_finished:1", "after:log:run_resumed:1", "before:log:run_finished:1"),
    *("torn:log:message:2", "torn:log:run_finished:2", "after:log:run_finished:2", "torn:results:results:2"),
    *("after:results:results:3", "after:log:block_started:4"),
)
"""Where the process is killed, one after the other: before, in the middle of or after a line of a file, by its task."""
ASKED_TWICE = Counter([(1, 0)])
"""The answer was torn."""


@pytest.mark.timeout(300)
async def test_batch_killed_at_every_kind_of_line_ends_as_if_it_was_not(
    bubblewrap: None, server: OpenAIServer, tmp_path: Path
) -> None:
    def run(*points: str) -> tuple[int, str, str]:
        arguments = ["-c", PROGRAM, str(tmp_path / "out"), server.base_url, *points]
        done = processes.run(arguments, env=os.environ, timeout=120)
        return done.returncode, done.stdout, done.stderr

    shown: list[str] = []
    for point in POINTS:
        status, output, errors = run(point)
        assert status == -signal.SIGKILL, f"{point}: {errors}"
        shown += output.splitlines()
    status, output, errors = run()
    assert status == 0, errors

    assert asked(server) == once(*range(TASKS)) + ASKED_TWICE
    # The row of task 3 was on the disk, and not yet printed.
    assert shown + output.splitlines() == [f"double/{n} completed {n * 2}" for n in range(TASKS) if n != 3]
    rows = lines(tmp_path / "out")
    columns = ("id", "outcome", "answer", "steps", "model_calls", "prompt_tokens", "completion_tokens")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (f"double/{number}", "completed", str(number * 2), 2, 2, 14, 6) for number in range(TASKS)
    ]
    assert len(os.listdir(tmp_path / "out/runs")) == TASKS
    assert sorted(os.listdir(tmp_path / "out")) == ["batch.json", "lock", "results.jsonl", "runs", "summary.json"]
    for request in server.requests:
        _check_request(request["messages"])


def _check_request(messages: list[dict[str, Any]]) -> None:
    """Check that the request for the answer has the code and what it printed, or why that is not known."""
    number = number_of(messages)
    assert [each["role"] for each in messages] in (["system", "user"], ["system", "user", "assistant", "user"])
    for told in messages[3:]:
        if number == 4:  # the code was running
            assert "It is not known how far this code came: the process of the agent ended" in told["content"]
        else:
            assert f"x is {number}" in told["content"]
