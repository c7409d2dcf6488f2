"""Logs of whole runs: what is written, in which order, and what never ends the run or stays behind."""

import asyncio
import os
from contextlib import aclosing

import pytest
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken

from autogen_codeact.agents import ApprovalResponse, CodeActAgent
from autogen_codeact.runs import recorded
from autogen_codeact.runs.messages import dump_message
from codeact_sandbox import HostTool
from tests.agents.codeact import python
from tests.agents.support import scripted

from .support import events_of, run, types_of


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def fail(name: str) -> None:
    """Fail."""
    raise KeyError(name)


async def test_intent_and_result_of_each_host_call_are_logged(session, tmp_path):
    code = python("x = add(1, 2)\ntry:\n    fail('k')\nexcept KeyError:\n    pass\nadd('a', 2)")
    agent = CodeActAgent("actor", session, model_client=scripted(code, "3."), tools=[add, fail])
    items = await run(agent, tmp_path / "run")
    assert isinstance(items[-1], TaskResult)
    events = events_of(tmp_path / "run")
    started = [event for event in events if event.type == "host_call_started"]
    finished = [event for event in events if event.type == "host_call_finished"]
    assert [(each.call, each.name, each.arguments) for each in started] == [
        (1, "add", {"a": 1, "b": 2}),
        (2, "fail", {"name": "k"}),
        (3, "add", {"a": "a", "b": 2}),
    ]
    records = [(each.call, each.record.outcome, each.record.result) for each in finished]
    assert records == [(1, "ok", 3), (2, "error", None), (3, "error", None)]
    assert [each.record.error.type for each in finished[1:]] == ["KeyError", "TypeError"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_intent_is_on_disk_before_the_tool_runs_and_its_result_before_the_code_sees_it(session, tmp_path):
    found = []

    def look() -> int:
        """Look at the log."""
        found.append(types_of(tmp_path / "run", "host_call"))
        return len(found)

    agent = CodeActAgent("actor", session, model_client=scripted(python("look()\nlook()"), "Done."), tools=[look])
    await run(agent, tmp_path / "run")
    names = [name.split()[0] for name in types_of(tmp_path / "run", "host_call")]
    assert names == ["host_call_started", "host_call_finished"] * 2
    assert [len(each) for each in found] == [1, 3]


async def test_calls_of_idempotent_tools_wait_for_no_disk(session, tmp_path, monkeypatch):
    synced = []
    flush = os.fdatasync
    monkeypatch.setattr("os.fdatasync", lambda descriptor: (synced.append(descriptor), flush(descriptor)))
    counts = []

    def count() -> int:
        """Count."""
        counts.append(len(synced))
        return 0

    tools = [HostTool(count, idempotent=True)]
    code = python("for _ in range(5): count()")
    agent = CodeActAgent("actor", session, model_client=scripted(code, "Done."), tools=tools)
    await run(agent, tmp_path / "run")
    assert len(set(counts)) == 1
    events = [event for event in events_of(tmp_path / "run") if event.type == "host_call_started"]
    assert [event.idempotent for event in events] == [True] * 5


async def test_run_yields_what_run_stream_yields_and_the_log_has_it(session, tmp_path):
    model = scripted(python("print(1)"), "One.", python("print(1)"), "One.")
    agent = CodeActAgent("actor", session, model_client=model, stream_output=True)
    items = await run(agent, tmp_path / "run")
    expected = [item async for item in agent.run_stream(task="Go.")]
    assert without_chunks(items) == without_chunks(expected)
    logged = [event for event in events_of(tmp_path / "run") if event.type in ("message", "chunk")]
    assert [event.message for event in logged] == [dump_message(item)[0] for item in items[:-1]]
    chunks = [event for event in logged if event.type == "chunk"]
    assert "".join(event.message["content"] for event in chunks) in ("1\n", "")  # short output may come with the result
    assert all(event.time and event.monotonic for event in logged)


def without_chunks(items):
    return [type(item) for item in items if not isinstance(item, ModelClientStreamingChunkEvent)]


def approve(_: object) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="")


async def test_first_events_describe_the_run(session, tmp_path):
    model = scripted("3.")
    agent = CodeActAgent("actor", session, model_client=model, tools=[add], approval_func=approve)
    await run(agent, tmp_path / "run")
    started, boundary, *_, last = events_of(tmp_path / "run")
    assert (started.kind, started.name, started.task[0]["content"]) == ("agent", "actor", "Go.")
    assert started.component["provider"] == "autogen_codeact.agents.CodeActAgent"
    assert started.component["config"]["tools"] == []
    (info,) = started.agents
    assert (info.name, info.kind, info.tools, info.functions) == ("actor", "CodeActAgent", ["add"], ["approval_func"])
    assert info.executor == "BubblewrapCommandLineCodeExecutor"
    assert started.process.pid == os.getpid()
    assert started.process.versions["autogen-agentchat"].startswith("0.7")
    assert (boundary.at, boundary.state["type"]) == ("start", "CodeActAgentState")
    assert (last.type, last.outcome, last.error) == ("run_finished", "completed", None)


# Ends


@pytest.mark.parametrize("how", ["token", "task", "close"])
async def test_cancelled_run_is_logged_as_cancelled(session, tmp_path, how):
    token = CancellationToken()
    agent = CodeActAgent("actor", session, model_client=scripted(python("while True: print('x')")), stream_output=True)
    stream = recorded(agent, task="Loop.", path=tmp_path / "run", cancellation_token=token)

    async def read():
        async for item in stream:
            if isinstance(item, ModelClientStreamingChunkEvent):
                if how == "close":
                    await stream.aclose()
                    return
                token.cancel() if how == "token" else asyncio.current_task().cancel()

    reading = asyncio.ensure_future(read())
    await asyncio.wait({reading})
    assert reading.cancelled() == (how != "close")
    assert events_of(tmp_path / "run")[-1].outcome == "cancelled"
    assert (await session.run_blocks([type("Block", (), {"code": "1+1", "language": "python"})()])).value == 2


async def test_run_whose_stream_is_closed_after_the_result_is_logged_as_completed(session, tmp_path):
    agent = CodeActAgent("actor", session, model_client=scripted(python("final_answer(3)")))
    async with aclosing(recorded(agent, task="Three.", path=tmp_path / "run")) as stream:
        async for item in stream:
            if isinstance(item, TaskResult):
                break
    assert events_of(tmp_path / "run")[-1].outcome == "completed"


async def test_call_that_a_closed_stream_interrupts_is_logged_before_the_end(session, tmp_path):
    called = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        called.set()
        await asyncio.sleep(60)

    agent = CodeActAgent("actor", session, model_client=scripted(python("wait()")), tools=[wait])
    stream = recorded(agent, task="Wait.", path=tmp_path / "run")

    async def read():
        async for _ in stream:
            pass

    reading = asyncio.ensure_future(read())
    await called.wait()
    reading.cancel()
    await asyncio.wait({reading})
    last = events_of(tmp_path / "run")[-2:]
    assert [event.type for event in last] == ["host_call_finished", "run_finished"]
    assert last[0].record.outcome == "cancelled"
