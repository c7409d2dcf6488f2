"""An attempt on a worker, in this process and without Ray."""

import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor
from pydantic_core import from_json

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import BatchBudgetError, BatchSettings, Task
from autogen_codeact.batch.attempt import AttemptWork, WorkerContext
from autogen_codeact.batch.errors import AttemptError
from autogen_codeact.batch.limits import LocalGate
from autogen_codeact.batch.ray.folders import Sent
from autogen_codeact.batch.ray.worker import RemoteAttempt
from autogen_codeact.batch.sandboxes import Sandboxes, SandboxSpec
from tests.agents.support import scripted

pytestmark = pytest.mark.usefixtures("bubblewrap")


def make_agent(executor: CodeExecutor) -> CodeActAgent:
    return CodeActAgent("coder", executor, model_client=scripted("```python\nfinal_answer('x' * 200)\n```"))


@pytest.fixture
async def context() -> AsyncIterator[Any]:
    gate = LocalGate(BatchSettings())
    spec = SandboxSpec("bubblewrap", concurrency=1, max_sandboxes=1)
    sandboxes = Sandboxes(spec)
    await sandboxes.start()
    yield WorkerContext(make_agent, sandboxes, gate)
    await sandboxes.stop()


def attempt_at(folder: Path, context: Any, **task: Any) -> RemoteAttempt:
    work = AttemptWork(Task(id="1", task="do it", **task), folder / "log", folder / "work")
    return RemoteAttempt(folder / "worker", work, context, "node")


async def sent_by(attempt: RemoteAttempt, refusal: str | None = None) -> list[Sent]:
    """Run an attempt as a driver does, and return what it has sent."""
    sent = []
    try:
        async for each in attempt.run([Sent("work", b"1", "given")]):
            sent.append(each)
            if each.kind == "enter":
                attempt.gate.permit(refusal)
    finally:
        await attempt.close()
    return sent


async def test_a_result_comes_after_the_whole_log(context: Any, tmp_path: Path) -> None:
    sent = await sent_by(attempt_at(tmp_path, context))

    kinds = [each.kind for each in sent]
    assert (kinds.count("enter"), kinds.count("used"), kinds.count("work"), kinds[-1]) == (1, 1, 0, "result")
    log = b"".join(each.content for each in sent if each.kind == "log")
    events = [from_json(line)["type"] for line in log.splitlines()]
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    result = sent[-1].content
    assert (result.outcome, result.answer, result.engine) == ("completed", "x" * 200, "node")
    assert not (tmp_path / "worker").exists()


async def test_a_refused_model_call_ends_the_attempt(context: Any, tmp_path: Path) -> None:
    with pytest.raises(BatchBudgetError, match=r"^the budget is used up$"):
        await sent_by(attempt_at(tmp_path, context), "the budget is used up")


async def test_a_cancelled_attempt_sends_its_log_and_no_result(context: Any, tmp_path: Path) -> None:
    attempt, sent = attempt_at(tmp_path, context), []
    async for each in attempt.run([]):
        sent.append(each)
        if each.kind == "enter":
            attempt.cancel()
    kinds = [each.kind for each in sent]
    assert ("log" in kinds, "result" in kinds) == (True, False)
    await attempt.close()


async def test_data_that_the_node_does_not_have_is_named(context: Any, tmp_path: Path) -> None:
    with pytest.raises(AttemptError) as raised:
        await sent_by(attempt_at(tmp_path, context, data=["/no/such/data"]))
    assert (raised.value.engine, raised.value.error) == (
        "node",
        "data: /no/such/data does not exist on the node node. Data is not sent: have it at the same path on each node, for "
        "example in a shared file system, or use `files` of the tasks, which are sent",
    )


async def test_errors_of_attempts_can_be_sent() -> None:
    error = AttemptError("SandboxDied", "gone", retryable=True, usage={"steps": 1}, engine="node", retry_after=2.0)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == ("SandboxDied: gone", vars(error))
