"""Both ends of an attempt on a worker, in this process and without Ray."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor
from pydantic_core import from_json

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import AttemptError, AttemptWork, BatchBudgetError, BatchContext, BatchSettings, Task
from autogen_codeact.batch import ray_worker as worker_module
from autogen_codeact.batch.limits import LocalGate
from autogen_codeact.batch.pieces import Header, Piece, PieceError
from autogen_codeact.batch.ray_backend import _Actor, _Exchange
from autogen_codeact.batch.ray_worker import Inputs, RemoteAttempt
from autogen_codeact.batch.sandboxes import SandboxSpec
from tests.agents.support import scripted

pytestmark = pytest.mark.usefixtures("bubblewrap")


def make_agent(executor: CodeExecutor) -> CodeActAgent:
    return CodeActAgent("coder", executor, model_client=scripted("```python\nfinal_answer('x' * 200)\n```"))


@pytest.fixture
async def context() -> AsyncIterator[Any]:
    gate = LocalGate(BatchSettings())
    spec = SandboxSpec("bubblewrap", concurrency=1, max_sandboxes=1)
    worker = BatchContext(make_agent, spec, gate, BatchSettings()).worker(gate)
    await worker.sandboxes.start()
    yield worker
    await worker.sandboxes.stop()


def attempt_at(folder: Path, context: Any, **task: Any) -> RemoteAttempt:
    work = AttemptWork(Task(id="1", task="do it", **task), folder / "log", folder / "work")
    return RemoteAttempt(folder / "worker", work, Inputs(), context, "node")


async def pieces_of(attempt: RemoteAttempt, refusal: str | None = None) -> list[Piece]:
    """Run an attempt as a driver does, and return what it has sent."""
    attempt.start()
    pieces = []
    while not pieces or pieces[-1].header.kind not in {"result", "error", "budget", "cancelled"}:
        pieces.append(await attempt.next())
        if pieces[-1].header.kind == "enter":
            attempt.gate.permit(refusal)
    await attempt.close()
    return pieces


async def test_a_result_comes_after_the_whole_log(context: Any, tmp_path: Path) -> None:
    pieces = await pieces_of(attempt_at(tmp_path, context))

    kinds = [piece.header.kind for piece in pieces]
    assert (kinds.count("enter"), kinds.count("used"), kinds[-1]) == (1, 1, "result")
    log = b"".join(piece.data for piece in pieces if piece.header.kind == "log")
    events = [from_json(line)["type"] for line in log.splitlines()]
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    result = from_json(pieces[-1].data)
    assert (result["outcome"], result["answer"], result["engine"]) == ("completed", "x" * 200, "node")
    assert not (tmp_path / "worker").exists()


async def test_a_result_that_is_too_large_is_an_error(
    context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "MAX_RESULT", 200)
    last = (await pieces_of(attempt_at(tmp_path, context)))[-1]
    error = from_json(last.data)
    assert (last.header.kind, error["error_class"], error["retryable"]) == ("error", "ResultTooLarge", False)
    assert error["error"].endswith(" bytes; a worker may send 200")


async def test_a_refused_model_call_ends_the_attempt(context: Any, tmp_path: Path) -> None:
    last = (await pieces_of(attempt_at(tmp_path, context), "the budget is used up"))[-1]
    assert (last.header.kind, last.data) == ("budget", b"the budget is used up")


async def test_data_that_the_node_does_not_have_is_named(context: Any, tmp_path: Path) -> None:
    (last,) = await pieces_of(attempt_at(tmp_path, context, data=["/no/such/data"]))
    assert from_json(last.data)["error"] == (
        "data: /no/such/data does not exist on the node node. Data is not sent: have it at the same path on each node, for "
        "example in a shared file system, or use `files` of the tasks, which are sent"
    )


async def test_without_a_driver_no_model_is_asked(
    context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "IDLE_S", 0.01)
    monkeypatch.setattr(worker_module, "DRIVER_LOST_S", 0.0)
    attempt = attempt_at(tmp_path, context)
    with pytest.raises(ConnectionError, match=r"^the driver of the batch does not answer$"):
        await attempt.gate.enter()
    await attempt.close()


@pytest.fixture
def exchange(tmp_path: Path) -> _Exchange:
    work = AttemptWork(Task(id="1", task="do it"), tmp_path / "log", tmp_path / "work")
    return _Exchange(_Actor(None), "key", work, LocalGate(BatchSettings()))


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (Header(kind="result"), b"no json", "the result can't be read: 1 error"),
        (Header(kind="result"), b'{"outcome":"won"}', "the result can't be read: 1 error"),
        (Header(kind="error"), b"[]", "the error of an attempt can't be read"),
        (Header(kind="error"), b'{"error_class":"A","error":"b","more":1}', "the error of an attempt can't be read"),
        (Header(kind="used"), b"[1]", "a number of tokens can't be read"),
        (Header(kind="input", name="0"), b"", "a worker does not send 'input'"),
    ],
)
async def test_what_a_worker_may_not_send_is_refused(
    exchange: _Exchange, header: Header, data: bytes, message: str
) -> None:
    with pytest.raises(PieceError) as refused:
        await exchange._take(Piece(header, data))
    assert str(refused.value) == message


async def test_a_driver_takes_no_more_than_the_largest_result(exchange: _Exchange) -> None:
    piece = Piece(Header(kind="result", last=False), b"x" * 1024 * 1024)
    for _ in range(16):
        assert await exchange._take(piece) is None
    with pytest.raises(PieceError, match=r"^the result has more than 16,777,216 bytes$"):
        await exchange._take(piece)


async def test_errors_of_a_worker_are_raised_by_the_driver(exchange: _Exchange) -> None:
    data = b'{"error_class":"SandboxDied","error":"gone","retryable":true,"engine":"node"}'
    with pytest.raises(AttemptError, match=r"^SandboxDied: gone$") as raised:
        await exchange._take(Piece(Header(kind="error"), data))
    assert (raised.value.retryable, raised.value.engine) == (True, "node")
    with pytest.raises(BatchBudgetError, match=r"^used up$"):
        await exchange._take(Piece(Header(kind="budget"), b"used up"))
