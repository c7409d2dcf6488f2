"""Leaving an agent's or a team's stream while code runs: the block is dead soon, and the executor goes on."""

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import CodeGenerationEvent, ModelClientStreamingChunkEvent, TextMessage
from autogen_core import CancellationToken

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team
from tests.agents.support import scripted
from tests.sandbox.sandboxes import out

MARK = f"sleep 98765.{os.getpid()}"
CODE = f"""```python
import subprocess
print("begun", flush=True)
subprocess.run({MARK.split()!r})
```"""
Stream = AsyncGenerator[Any, None]
GONE_WITHIN_S = 30.0


def coder(executor: SandboxCodeExecutor, *, stream: bool) -> CodeExecutorAgent:
    return CodeExecutorAgent("coder", executor, model_client=scripted(CODE, "Done."), stream_output=stream)


def actor(executor: SandboxCodeExecutor, *, stream: bool) -> CodeActAgent:
    return CodeActAgent("actor", executor, model_client=scripted(CODE, "Done."), stream_output=stream)


def on_messages(agent: Any) -> Stream:
    stream: Stream = agent.on_messages_stream([TextMessage(content=CODE, source="user")], CancellationToken())
    return stream


def run_stream(agent: Any) -> Stream:
    stream: Stream = agent.run_stream(task=CODE)
    return stream


def in_a_team(agent: Any) -> Stream:
    return Team([agent], termination_condition=MaxMessageTermination(3)).run_stream(task=CODE)


def processes() -> list[str]:
    """The processes of the block on this machine: a sandbox's are visible from outside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        if line == MARK:
            found.append(path.parent.name)
    return found


async def until(there: bool) -> None:
    """Wait until there is such a process, or none any more."""
    for _ in range(int(GONE_WITHIN_S / 0.02)):
        if bool(processes()) is there:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"processes: {processes()}")


async def until_code_runs(stream: Stream) -> None:
    async for item in stream:
        if isinstance(item, ModelClientStreamingChunkEvent) and "begun" in item.content:
            break
    await until(there=True)


WAYS = [(make, begin) for make in (coder, actor) for begin in (on_messages, run_stream, in_a_team)]


async def close(stream: Stream) -> None:
    await until_code_runs(stream)
    await asyncio.wait_for(stream.aclose(), GONE_WITHIN_S)


async def leave(stream: Stream) -> None:
    await until_code_runs(stream)
    del stream
    gc.collect()


async def cancel(stream: Stream) -> None:
    async def read() -> None:
        async for _ in stream:
            pass

    reading = asyncio.ensure_future(read())
    await until(there=True)
    reading.cancel()
    await asyncio.wait({reading}, timeout=GONE_WITHIN_S)
    assert reading.cancelled()


@pytest.mark.parametrize(("end", "streamed"), [(close, True), (leave, True), (cancel, True), (cancel, False)])
async def test_whoever_leaves_a_stream_kills_the_block(
    session: SandboxCodeExecutor, end: Callable[[Stream], Awaitable[None]], streamed: bool
) -> None:
    for make, begin in WAYS:
        await end(begin(make(session, stream=streamed)))
        if end is close and begin is not in_a_team:  # a team waits for less than a second for a turn that it ends
            assert processes() == []  # when the call has come back, not some time later
        await until(there=False)
        assert await asyncio.wait_for(out(session, "print('usable')"), GONE_WITHIN_S) == "usable\n"


@pytest.mark.parametrize("make", [coder, actor])
async def test_leaving_before_the_code_has_begun_runs_nothing(
    session: SandboxCodeExecutor, make: Callable[..., Any]
) -> None:
    stream = run_stream(make(session, stream=True))
    async for item in stream:
        if isinstance(item, CodeGenerationEvent):
            break
    await stream.aclose()
    await asyncio.sleep(0.2)
    assert processes() == []
    assert await out(session, "print('usable')") == "usable\n"
