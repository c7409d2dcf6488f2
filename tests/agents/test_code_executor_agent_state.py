"""What the agent keeps, forgets and takes back: state, reset, errors, cancellation."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as UpstreamAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import UserMessage
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from autogen_codeact.agents import CodeExecutorAgent
from tests.agents.support import FAILS, SYSTEM, WORKS, decision, received_by, scripted

pytestmark = pytest.mark.filterwarnings(
    # AutoGen's local executor warns that it is no sandbox; the code here is ours.
    "ignore:Using LocalCommandLineCodeExecutor:UserWarning"
)

SECOND = UserMessage(content="second", source="user")


class Executor(LocalCommandLineCodeExecutor):
    """AutoGen's local executor with the restart that it lacks, and a broken day on request."""

    restarts = 0
    broken: Exception | None = None
    restart_takes = 0.0

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> Any:
        if self.broken is not None:
            raise self.broken
        return await super().execute_code_blocks(code_blocks, cancellation_token)

    async def restart(self) -> None:
        await asyncio.sleep(self.restart_takes)
        self.restarts += 1


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncGenerator[Executor, None]:
    async with Executor(timeout=20, work_dir=tmp_path) as executor:
        yield executor


@pytest.mark.filterwarnings("ignore:No approval function set:UserWarning")  # upstream's advice to its own users
async def test_state_of_the_agent_of_autogen_is_loaded_as_empty(executor: CodeExecutor) -> None:
    agent = CodeExecutorAgent("coder", executor, model_client=scripted("ok"))
    await agent.run(task="first")

    await agent.load_state(await UpstreamAgent("coder", executor).save_state())

    assert await agent.model_context.get_messages() == []


async def test_reset_leaves_an_executor_alone_that_was_never_used(executor: Executor) -> None:
    agent = CodeExecutorAgent("coder", executor, model_client=scripted("ok"))
    await agent.run(task="first")
    await agent.on_reset(CancellationToken())
    assert executor.restarts == 0


async def test_reset_has_a_deadline(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_codeact.agents.code_runner.RESTART_DEADLINE_S", 0.05)
    agent = CodeExecutorAgent("runner", executor)
    await agent.run(task=WORKS)
    executor.restart_takes = 30

    with pytest.raises(TimeoutError, match="did not restart within"):
        await agent.on_reset(CancellationToken())


async def test_an_error_around_the_code_propagates_and_the_agent_goes_on(executor: Executor) -> None:
    client = scripted(WORKS, WORKS, "It is 42.")
    agent = CodeExecutorAgent("coder", executor, model_client=client)
    executor.broken = ConnectionError("the sandbox is gone")
    with pytest.raises(ConnectionError, match="the sandbox is gone"):
        await agent.run(task="first")

    executor.broken = None
    result = await agent.run(task="second")

    assert result.messages[-1].to_text() == "It is 42."
    assert received_by(client)[1] == [SYSTEM, SECOND]


async def test_error_late_in_a_turn_restores_the_conversation(executor: Executor) -> None:
    client = scripted("ok", FAILS, decision(True))  # and then no reply is left
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=1)
    await agent.run(task="first")
    before = await agent.save_state()

    with pytest.raises(ValueError, match="No more mock responses"):
        await agent.run(task="second")

    assert await agent.save_state() == before


async def test_closing_the_stream_early_restores_the_conversation(executor: Executor) -> None:
    agent = CodeExecutorAgent("coder", executor, model_client=scripted(WORKS, "It is 42."))
    stream = agent.on_messages_stream([user("first")], CancellationToken())
    assert await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert await agent.model_context.get_messages() == []


def user(words: str) -> TextMessage:
    return TextMessage(content=words, source="user")
