"""Recorders of calls to host tools: what they get, in which order, and what a failing one does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    ExecutionResult,
    ToolApproval,
    ToolApprovalRequest,
)
from codeact_sandbox.types.observers import CallFinished, CallIntent
from tests.abuse.subject import Kind
from tests.sandbox.sandboxes import out, run
from tests.sandbox.tools.host_tools import Endless, makes, short_calls

EVENTS: list[str] = []


@pytest.fixture(autouse=True)
def events() -> list[str]:
    EVENTS.clear()
    return EVENTS


async def add(a: int, b: int = 2) -> int:
    """Add."""
    EVENTS.append("run")
    return a + b


async def fail() -> None:
    """Raise."""
    raise LookupError("nothing there")


class Recorder:
    """Writes events down; fails or waits where it is told to."""

    def __init__(self, *fails: str, waits: asyncio.Event | None = None) -> None:
        self.fails = fails
        self.waits = waits
        self.intents: list[CallIntent] = []
        self.finished: list[CallFinished] = []

    async def call_starting(self, intent: CallIntent) -> None:
        EVENTS.append("starting")
        if self.waits is not None:
            await self.waits.wait()
        if "call_starting" in self.fails:
            raise OSError("the disk is full")
        await asyncio.sleep(0.01)
        self.intents.append(intent)
        EVENTS.append(f"intent {intent.number} {intent.name}")

    async def call_finished(self, finished: CallFinished) -> None:
        EVENTS.append("finishing")
        if "call_finished" in self.fails:
            raise OSError("the disk is full")
        await asyncio.sleep(0.01)
        self.finished.append(finished)
        EVENTS.append(f"finished {finished.intent.number} {finished.call.outcome}")


Make = Callable[..., Awaitable[BubblewrapCommandLineCodeExecutor]]


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    """Makes an executor with these tools and a recorder, and stops it after the test."""
    async with makes(Kind("bubblewrap", "session")) as make:

        async def make_recorded(*tools: Any, recorder: Any, **options: Any) -> Any:
            executor = await make(*tools, **options)
            executor.attach(recorder=recorder)
            return executor

        yield make_recorded


def errors(result: ExecutionResult) -> list[str | None]:
    return [call.error.message if call.error else None for call in result.tool_calls]


async def test_errors_and_refused_calls_are_recorded_and_a_refused_one_has_no_intent(make: Make) -> None:
    async def approve(request: ToolApprovalRequest) -> ToolApproval:
        return ToolApproval(request.name != "add", "no sums")

    recorder = Recorder()
    executor = await make(add, fail, recorder=recorder, approve_tool=approve)
    code = "for tool in (lambda: add(1), fail):\n    try:\n        tool()\n    except Exception as error:\n        print(error)"
    assert await out(executor, code) == "no sums\nnothing there\n"
    assert [each.name for each in recorder.intents] == ["fail"]
    assert [(each.intent.name, each.call.outcome) for each in recorder.finished] == [
        ("add", "refused"),
        ("fail", "error"),
    ]


async def test_a_call_whose_intent_cannot_be_recorded_is_refused(make: Make) -> None:
    executor = await make(add, recorder=Recorder("call_starting"))
    code = "try:\n    add(1)\nexcept PermissionError as error:\n    print(type(error).__name__, error)"
    result = await run(executor, code)
    said = "it was not made, because it could not be recorded: OSError: the disk is full"
    assert result.output == f"ToolRefused {said}\n"
    assert short_calls(result) == [("add", {"a": 1}, "refused", "ToolRefused")]
    assert EVENTS == ["starting", "finishing", "finished 1 refused"]


async def test_a_result_that_cannot_be_recorded_is_an_error(make: Make) -> None:
    executor = await make(add, fail, recorder=Recorder("call_finished"))
    code = "for tool in (lambda: add(1), fail):\n    try:\n        tool()\n    except Exception as error:\n        print(error)"
    result = await run(executor, code)
    said = "the host tool has run, but it could not be recorded: OSError: the disk is full"
    assert result.output == f"{said}\nnothing there\n"
    assert [(call.outcome, call.result) for call in result.tool_calls] == [("error", None), ("error", None)]
    assert errors(result) == [said, "nothing there"]


async def test_a_call_that_is_cancelled_between_intent_and_result_is_recorded_as_cancelled(make: Make) -> None:
    endless, recorder = Endless(), Recorder()
    executor = await make(endless.endless, add, recorder=recorder)
    code = """
        import asyncio

        async def main():
            try:
                await asyncio.wait_for(endless.aio(), 1.5)
            except asyncio.TimeoutError:
                print("timeout")

        asyncio.run(main())
        print(add(1))
    """
    result = await run(executor, code)
    assert result.output == "timeout\n3\n"
    assert [each.call.outcome for each in recorder.finished] == ["cancelled", "ok"]
    assert endless.ended == ["cancelled"]
