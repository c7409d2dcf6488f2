"""A run whose process is killed again and again ends as one that was never interrupted."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.openai_server import OpenAIServer
from tests.runs.example_run import counted, expected, model

pytestmark = pytest.mark.more

ROOT = str(Path(__file__).parents[2])
PROGRAM = f"import sys; sys.path.insert(0, {ROOT!r}); from tests.runs.killed_run import begin; begin()"
STEPS = 12
POINTS = (
    *("after:run_started", "after:boundary", "after:model_call_started", "torn:model_call_finished", "after:message"),
    *("after:block_started", "after:host_call_started", "before:host_call_finished", "after:host_call_finished"),
    *("torn:block_finished", "after:run_resumed", "before:run_finished"),
)


def run_until(folder: Path, server: OpenAIServer, kind: str, *point: str) -> tuple[int, str, str]:
    """Begin or continue the run, in a process that is killed at a point: its exit status and what it has printed."""
    arguments = ["-c", PROGRAM, str(folder), server.base_url, "bubblewrap", kind, *point]
    done = processes.run(arguments, env=os.environ, timeout=120)
    return done.returncode, done.stdout, done.stderr


def under_way(events: list[dict[str, Any]]) -> set[int]:
    """The arguments of calls to the tool whose end is not in the log."""
    ended = {
        (event["agent"], event["block"], event["call"]) for event in events if event["type"] == "host_call_finished"
    }
    started = [event for event in events if event["type"] == "host_call_started"]
    return {e["arguments"]["number"] for e in started if (e["agent"], e["block"], e["call"]) not in ended}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["agent", "team"])
async def test_run_killed_at_every_kind_of_event_ends_as_if_it_was_not(
    bubblewrap: None, kind: str, tmp_path: Path
) -> None:
    folder, calls = tmp_path / "run", tmp_path / "calls"
    (tmp_path / "work").mkdir()
    async with OpenAIServer(model(STEPS, per_turn=4 if kind == "team" else 99)) as server:
        run = partial(run_until, folder, server, kind)

        whole = b""
        for point in POINTS if kind == "agent" else POINTS[1::4]:
            status, _, errors = run(point)
            assert status == -signal.SIGKILL, f"{point}: {errors}"
            log = (folder / "events.jsonl").read_bytes()
            assert log.startswith(whole), f"{point}: lines of the log were changed"
            whole = log[: log.rfind(b"\n") + 1] if b'"boundary"' in log else b""
            if not whole:  # it was killed before there was anything to continue
                for file in folder.iterdir():
                    file.unlink()
        status, answer, errors = run()
    assert (status, answer) == (0, expected(STEPS) + "\n"), errors
    events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    made = counted(calls)
    assert len(made) == len(set(made))
    # What was under way was perhaps made, and was not repeated.
    assert set(range(1, STEPS + 1)) - set(made) <= under_way(events)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for kind_of_event in ("block_started", "block_finished", "model_call_finished"):
        numbers = [(event["agent"], event["number"]) for event in events if event["type"] == kind_of_event]
        assert len(numbers) == len(set(numbers)), kind_of_event


LATER_POINTS = (
    *("torn:question_asked", "after:question_asked", "before:run_finished", "after:run_finished", "after:run_resumed"),
    *("before:question_answered", "after:question_answered", "after:block_started", "after:host_call_started"),
    *("after:host_call_finished", "torn:block_finished"),
)


@pytest.mark.timeout(400)
async def test_run_killed_around_its_questions_makes_each_approved_call_once(bubblewrap: None, tmp_path: Path) -> None:
    folder, calls = tmp_path / "run", tmp_path / "calls"
    (tmp_path / "work").mkdir()
    async with OpenAIServer(model(3)) as server:
        run = partial(run_until, folder, server, "later")

        assert run()[:2] == (0, "waiting\n")
        for point in LATER_POINTS:
            while (ended := run(point))[1] == "waiting\n":
                pass  # it did not come to this point
            assert ended[0] == -signal.SIGKILL, f"{point}: {ended[2]}"
        while (ended := run())[1] == "waiting\n":
            pass
    assert ended[:2] == (0, expected(3) + "\n"), ended[2]
    made = counted(calls)
    assert len(made) == len(set(made))
    events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    assert set(range(1, 4)) - set(made) <= under_way(events)
    asked = {event["question"]: event for event in events if event["type"] == "question_asked"}
    answered = [event["question"] for event in events if event["type"] == "question_answered"]
    assert len(answered) == len(set(answered))
    approved = [json.loads(asked[each]["text"]) for each in answered if asked[each]["tool"] is not None]
    started = [event["arguments"] for event in events if event["type"] == "host_call_started"]
    assert all(started.count(each) <= approved.count(each) for each in started)
    blocks = [event["number"] for event in events if event["type"] == "block_started"]
    assert sorted(asked[each]["block"] for each in answered if asked[each]["tool"] is None) == blocks
