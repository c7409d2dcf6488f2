"""Commands with a live model that are interrupted or killed, and go on."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.batch_support import rows
from tests.cli.chat_terminal import CTRL_C, Chat
from tests.cli.support import codeact, start, wait_until
from tests.live.server import NAME, ModelServer

pytestmark = [pytest.mark.live, pytest.mark.timeout(180), pytest.mark.usefixtures("bubblewrap")]

SECONDS = 90


def events(log: Path) -> list[dict[str, Any]]:
    """Return the events of a run; one that is being written is left out."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def generates(log: Path) -> bool:
    """Return whether a call to the model has begun and not ended."""
    kinds = [event["type"] for event in events(log)]
    return kinds.count("model_call_started") > kinds.count("model_call_finished")


def options(server: ModelServer) -> list[str]:
    """Return the options of a command for a model and a sandbox."""
    return ["--model", NAME, "--base-url", f"{server.url}/v1", "--sandbox", "bubblewrap"]


def test_ctrl_c_in_a_chat_ends_an_answer_and_the_next_one_comes(tmp_path: Path, server: ModelServer) -> None:
    env = {"OPENAI_API_KEY": server.key}
    with Chat(*options(server), state=tmp_path / "state", env=env) as chat:
        chat.until_prompt()
        chat.send("Tell a very long story about a river.\r")
        wait_until(lambda: any(generates(run / "events.jsonl") for run in chat.runs), "the request", SECONDS)
        chat.send(CTRL_C)
        assert "[turn ended; the conversation is as it was before it]" in chat.until_prompt()
        assert " tokens, " in chat.say("Say yes.")
        chat.send("/quit\r")
        assert chat.end()[0] == 0


def test_a_batch_that_is_killed_goes_on_and_does_each_task_once(tmp_path: Path, server: ModelServer) -> None:
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out"
    lines = [json.dumps({"id": f"t{number}", "task": f"Print {number} * 2."}) for number in range(8)]
    tasks.write_text("\n".join(lines))
    env = {"OPENAI_API_KEY": server.key}
    arguments = ["batch", tasks, "--out", out, *options(server), "--concurrency", 4]
    with start(*arguments, env=env) as process:
        wait_until(lambda: (out / "results.jsonl").exists() and len(rows(out)) >= 2, "two rows", SECONDS)
        process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL
    first = rows(out)
    assert 2 <= len(first) < 8
    done = codeact(*arguments, env=env)
    assert done.status == 0, done
    assert [row for row in rows(out) if row in first] == sorted(first, key=lambda row: str(row["id"]))
    assert sorted(row["id"] for row in rows(out)) == [f"t{number}" for number in range(8)]
    assert {row["outcome"] for row in rows(out)} == {"completed"}


def test_a_run_that_is_killed_while_the_model_generates_is_continued(tmp_path: Path, server: ModelServer) -> None:
    folder, env = tmp_path / "run", {"OPENAI_API_KEY": server.key}
    log = folder / "events.jsonl"
    task = "Tell a very long story about a river."
    with start("run", "--act", task, *options(server), "--save", folder, "--budget", "steps=1", env=env) as process:
        wait_until(lambda: generates(log), "the request", SECONDS)
        process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL
    assert generates(log)
    done = codeact("resume", folder, "--json", env=env)
    assert done.status in (0, 1), done  # 1: it has reached its limit of steps
    assert done.objects[-1]["type"] == "TaskResult"
    assert [event["seq"] for event in events(log)] == list(range(1, len(events(log)) + 1))
    kinds = [event["type"] for event in events(log)]
    assert kinds[-1] == "run_finished"
    assert kinds.count("model_call_started") == kinds.count("model_call_finished") + 1
