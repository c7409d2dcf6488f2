"""An attempt on a worker, in this process and without Ray."""

import pickle
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor
from pydantic_core import from_json

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import BatchSettings, Task
from autogen_codeact.batch.attempt import AttemptWork, BatchContext, Worker
from autogen_codeact.batch.ray_worker import Piece, RemoteAttempt
from autogen_codeact.batch.results import AttemptError, Row
from autogen_codeact.batch.settings import LocalGate
from tests.agents.support import scripted

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("bubblewrap")]


def make_agent(executor: CodeExecutor) -> CodeActAgent:
    return CodeActAgent("coder", executor, model_client=scripted("```python\nfinal_answer('x' * 200)\n```"))


@pytest.fixture
async def context() -> AsyncIterator[Any]:
    settings, worker = BatchSettings(concurrency=1), Worker()
    await worker.start(BatchContext(make_agent, "bubblewrap", {}, LocalGate(settings), settings))
    yield worker
    await worker.stop()


def attempt_at(folder: Path, context: Any, **task: Any) -> RemoteAttempt:
    return RemoteAttempt(AttemptWork(Task(id="1", task="do it", **task), folder / "log", folder / "work"), context)


def left_in(folder: Path) -> list[Path]:
    return list(folder.glob("codeact-work-*"))


async def test_a_result_comes_after_the_whole_log(
    context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    attempt = attempt_at(tmp_path, context)
    attempt.fill([Piece("work", "given", b"1")])
    sent = [each async for each in attempt.run()]

    kinds = [each.kind for each in sent]
    assert (kinds.count("enter"), kinds.count("used"), kinds[-1]) == (1, 1, "result")
    pieces = [piece for each in sent if each.kind == "files" for piece in each.content]
    before, whole = (piece.content for piece in pieces if piece[:2] == ("log", "events.jsonl"))
    assert ("work", "given") not in {piece[:2] for piece in pieces}
    assert kinds.index("files") < kinds.index("enter")
    events = [from_json(line)["type"] for line in whole.splitlines()]
    assert whole.startswith(before)
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    result = sent[-1].content
    assert (result.outcome, result.answer) == ("completed", "x" * 200)
    assert left_in(tmp_path) == []


async def test_a_cancelled_attempt_ends_and_leaves_no_folder(
    context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with aclosing(attempt_at(tmp_path, context).run()) as items:
        async for each in items:
            if each.kind == "enter":
                break
    assert left_in(tmp_path) == []


async def test_data_that_the_node_does_not_have_is_named(context: Any, tmp_path: Path) -> None:
    with pytest.raises(AttemptError, match=r"^ValueError: data='/no/such/data': there is no such file or folder$"):
        async for _ in attempt_at(tmp_path, context, data=["/no/such/data"]).run():
            pass


async def test_errors_of_attempts_can_be_sent() -> None:
    row = Row(id="a", outcome="failed", error_class="SandboxDied", error="gone", steps=1)
    error = AttemptError(row, retryable=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == ("SandboxDied: gone", vars(error))
