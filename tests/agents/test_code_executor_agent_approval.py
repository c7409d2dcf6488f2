"""Code that somebody has to approve first."""

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import ApprovalRequest as UpstreamRequest
from autogen_agentchat.messages import CodeExecutionEvent, TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import UserMessage

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_codeact.executors import ExecutionResult
from tests.agents.support import SYSTEM, WORKS, plain, received_by, scripted, without_ids

YES = ApprovalResponse(approved=True, reason="fine")
NO = ApprovalResponse(approved=False, reason="no writing")
WRITES = "```python\nopen('written', 'w').close()\n```\n"
DENIED = "Code execution was not approved. Reason: no writing"


def sync(request: ApprovalRequest) -> ApprovalResponse:
    return YES if "print" in request.code else NO


async def with_await(request: ApprovalRequest) -> ApprovalResponse:
    await asyncio.sleep(0)
    return sync(request)


class SyncObject:
    def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        return sync(request)


class AsyncObject:
    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        return await with_await(request)


def with_flag(flag: bool, request: ApprovalRequest) -> ApprovalResponse:
    return sync(request)


async def with_flag_and_await(flag: bool, request: ApprovalRequest) -> ApprovalResponse:
    return await with_await(request)


KINDS: list[Callable[[ApprovalRequest], Any]] = [
    sync,
    with_await,
    SyncObject(),
    AsyncObject(),
    functools.partial(with_flag, True),
    functools.partial(with_flag_and_await, True),
    functools.partial(AsyncObject()),
    lambda request: with_await(request),  # noqa: PLW0108 (it looks sync from outside)
]


@pytest.mark.parametrize("func", KINDS)
async def test_every_kind_of_callable_can_approve_and_refuse(executor: CodeExecutor, tmp_path, func: Any) -> None:
    agent = CodeExecutorAgent("runner", executor, approval_func=func)

    approved = await agent.run(task=WORKS)
    refused = await agent.run(task=WRITES)

    assert approved.messages[-1].to_text() == "42\n"
    metadata = {
        "outcome": "denied",
        "exit_code": "1",
        "state": "kept",
        "duration_s": "0.000",
        "error": "NotApproved",
    }
    assert without_ids(refused.messages[1:]) == [plain(TextMessage(content=DENIED, source="runner", metadata=metadata))]
    assert not (tmp_path / "written").exists()


async def test_approval_request_has_all_code_and_the_conversation(executor: CodeExecutor) -> None:
    requests: list[ApprovalRequest] = []

    def remember(request: ApprovalRequest) -> ApprovalResponse:
        requests.append(request)
        return NO

    agent = CodeExecutorAgent("coder", executor, model_client=scripted(WORKS, "No."), approval_func=remember)
    await agent.run(task="Print 42.")
    await agent.execute_code_block([CodeBlock("print('```')\n", "python"), CodeBlock("ls", "sh")], CancellationToken())

    assert isinstance(requests[0], UpstreamRequest)
    assert requests[0].code == "```python\nprint(42)\n```"
    assert requests[0].context[0] == UserMessage(content="Print 42.", source="user")
    assert requests[0].context[1].content == WORKS
    assert requests[1].code == "````python\nprint('```')\n````\n\n```sh\nls\n```"


async def test_a_refusal_is_reflected_on_and_never_retried(executor: CodeExecutor) -> None:
    client = scripted(WRITES, "I may not write.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=3, approval_func=sync)

    result = await agent.run(task="Write.")

    event = result.messages[2]
    assert isinstance(event, CodeExecutionEvent)
    assert isinstance(event.result, ExecutionResult)
    assert (event.result.outcome, event.result.exit_code, event.result.output) == ("denied", 1, DENIED)
    assert [type(message).__name__ for message in result.messages] == [
        "TextMessage",
        "CodeGenerationEvent",
        "CodeExecutionEvent",
        "TextMessage",
    ]
    assert len(received_by(client)) == 2
    assert received_by(client)[1][0] == SYSTEM
    assert received_by(client)[1][-1] == UserMessage(content=DENIED, source="coder")


@pytest.mark.parametrize("func", [lambda request: 1 / 0, lambda request: True, lambda request: None])
async def test_nothing_runs_if_the_approval_fails_or_returns_a_wrong_type(
    executor: CodeExecutor, tmp_path, func: Any
) -> None:
    client = scripted(WRITES, "Nothing to do.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, approval_func=func)

    with pytest.raises((ZeroDivisionError, TypeError), match=r"division by zero|must return an ApprovalResponse"):
        await agent.run(task="Write.")

    assert not (tmp_path / "written").exists()
    await agent.run(task="Do nothing.")
    assert received_by(client)[1] == [SYSTEM, UserMessage(content="Do nothing.", source="user")]


async def test_approval_does_not_block_the_event_loop(executor: CodeExecutor) -> None:
    answer = threading.Event()

    def person(request: ApprovalRequest) -> ApprovalResponse:
        assert answer.wait(20)
        return YES

    agent = CodeExecutorAgent("runner", executor, approval_func=person)
    running = asyncio.create_task(agent.run(task=WORKS))
    await asyncio.sleep(0.05)
    assert not running.done()
    answer.set()  # reached only because the event loop was free
    assert (await running).messages[-1].to_text() == "42\n"


async def test_cancelling_ends_the_waiting_for_a_person(executor: CodeExecutor, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("codeact_sandbox.host.waiting.CANCEL_TIMEOUT_S", 0.1)
    answer = threading.Event()

    def person(request: ApprovalRequest) -> ApprovalResponse:
        answer.wait(20)
        return YES

    token = CancellationToken()
    agent = CodeExecutorAgent("runner", executor, approval_func=person)
    running = asyncio.create_task(agent.run(task=WRITES, cancellation_token=token))
    await asyncio.sleep(0.05)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    answer.set()
    assert not (tmp_path / "written").exists()


def test_no_warning_without_an_approval_function(executor: CodeExecutor, recwarn) -> None:
    CodeExecutorAgent("runner", executor)
    assert [str(warning.message) for warning in recwarn.list] == []
