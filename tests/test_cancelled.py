"""Cancellation at every stage, by token and by task: nothing is left behind, and the next run is complete."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.teams import Team
from tests.openai_server import OpenAIServer, Reply, structured
from tests.wire import (
    FAILS_CODE,
    MODES,
    SYSTEM,
    TASK,
    PlainAgent,
    by,
    decision,
    fenced,
    model,
    nothing_left,
    received_messages,
    runs,
    texts_of,
)

pytestmark = [pytest.mark.usefixtures("docker_engine"), structured]

WORKS_CODE = "print(6 * 7)\n"
FINE = [fenced(WORKS_CODE), "It is 42."]
# Its child, which leaves the block's process group, must be killed too.
SLEEPS_CODE = "import subprocess\nprint('begun')\nsubprocess.run(['setsid', 'sleep', '4711'])\n"
FAILS, SLEEPS = fenced(FAILS_CODE), fenced(SLEEPS_CODE)
SILENT = Reply(silent=True)
STAGES: dict[str, list[Reply | str]] = {
    "the model is asked": [SILENT],
    "the model talks on and on": [Reply("so ", endless=True)],
    "the code runs": [SLEEPS],
    "the decision is made": [FAILS, SILENT],
    "the decision goes on and on": [FAILS, Reply("so ", endless=True)],
    "the repair is written": [FAILS, decision(True), SILENT],
    "the repaired code runs": [FAILS, decision(True), SLEEPS],
    "the result is reflected on": [FAILS, decision(False), SILENT],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executors(docker_engine: str) -> AsyncIterator[dict[str, DockerCommandLineCodeExecutor]]:
    """One executor per mode for all tests of this file: each test must leave it unchanged."""
    async with (
        DockerCommandLineCodeExecutor(timeout=30) as process,
        DockerCommandLineCodeExecutor(mode="session", timeout=30) as session,
    ):
        for executor in (process, session):
            # After its first block, a sandbox has a process more, which is forked ahead for the next one.
            await executor.execute_code_blocks([CodeBlock(code="pass", language="python")], CancellationToken())
        yield {"process": process, "session": session}


def by_token(run: asyncio.Task[Any], token: CancellationToken) -> None:
    token.cancel()


def by_task(run: asyncio.Task[Any], token: CancellationToken) -> None:
    run.cancel()


def agent_alone(agent: CodeExecutorAgent) -> Any:
    return agent


def team_of_one(agent: CodeExecutorAgent) -> Any:
    return Team([agent], termination_condition=MaxMessageTermination(2))


async def start(
    whom: Any, server: OpenAIServer, executor: DockerCommandLineCodeExecutor, token: CancellationToken
) -> asyncio.Task[TaskResult]:
    """Start a run and wait until it is in the middle of the last step of its script."""
    stages, script = len(server.script), list(server.script)
    run = asyncio.create_task(whom.run(task=TASK, cancellation_token=token))
    await server.requested(stages)
    if script[-1].content == SLEEPS:
        await runs(executor, "sleep 4711")
    return run


# Each stage once, and each way of cancelling while code runs; alone or in a team, in either mode, by turns.
@pytest.mark.parametrize(
    ("stage", "mode", "stream", "cancel"),
    [(stage, MODES[n % 2], n % 4 < 2, (by_token, by_task)[n // 2 % 2]) for n, stage in enumerate(STAGES)]
    + [("the code runs", "session", False, by_token)],
)
async def test_cancelled_run_leaves_nothing(
    executors: dict[str, DockerCommandLineCodeExecutor],
    stage: str,
    mode: str,
    stream: bool,
    cancel: Callable[[asyncio.Task[Any], CancellationToken], None],
) -> None:
    executor = executors[mode]
    whom = (agent_alone, team_of_one)[(list(STAGES).index(stage) // 2 + (cancel is by_task)) % 2]
    async with OpenAIServer(STAGES[stage]) as server:
        client = server.client()
        agent = PlainAgent("coder", executor, model_client=client, model_client_stream=stream, max_retries_on_error=1)
        runner, token = whom(agent), CancellationToken()
        async with nothing_left(executor):
            run = await start(runner, server, executor, token)
            cancel(run, token)
            async with asyncio.timeout(30):
                with pytest.raises(asyncio.CancelledError):
                    await run
        assert await agent.model_context.get_messages() == []

        server.requests.clear()
        server.script += [Reply(words) for words in FINE]
        result = await runner.run(task="Six times seven?")

    assert texts_of(result.messages)[-1] == ("coder", "It is 42.")
    # A team still knows the first task: only the turn was undone.
    tasks = [by("user", TASK)] if isinstance(runner, Team) else []
    begin = [SYSTEM, *tasks, by("user", "Six times seven?")]
    assert received_messages(server) == [begin, [*begin, model(FINE[0]), by("coder", "42\n")]]
