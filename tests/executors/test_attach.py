"""Recorders and observers that are attached to an executor and detached again, while it works."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from tests.sandbox.pool.pooled import until
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.usefixtures("bubblewrap")

EVENTS: list[str] = []


class Watcher:
    """An observer; what it gets is noted with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, method: str) -> Any:
        return lambda _: EVENTS.append(f"{self.name}: {method}")


class Recorder(Watcher):
    """A recorder."""

    async def call_starting(self, intent: Any) -> None:
        await asyncio.sleep(0.01)
        EVENTS.append(f"{self.name}: starting {intent.name}")

    async def call_finished(self, finished: Any) -> None:
        await asyncio.sleep(0.01)
        EVENTS.append(f"{self.name}: finished {finished.call.outcome}")


GATE: list[asyncio.Event] = []


async def add(a: int, b: int) -> int:
    """Add."""
    EVENTS.append("add runs")
    return a + b


async def wait() -> None:
    """Wait for the test."""
    EVENTS.append("wait runs")
    await GATE[-1].wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_executor() -> AsyncIterator[BubblewrapCommandLineCodeExecutor]:
    executor = BubblewrapCommandLineCodeExecutor(mode="session", tools=[add, wait])
    yield executor
    await executor.stop()


@pytest.fixture
def executor(module_executor: BubblewrapCommandLineCodeExecutor) -> BubblewrapCommandLineCodeExecutor:
    EVENTS.clear()
    GATE.append(asyncio.Event())
    return module_executor


async def test_several_recorders_are_awaited_in_the_order_in_which_they_were_attached(executor):
    detach = [executor.attach(recorder=Recorder(name)) for name in ("first", "second")]
    assert await out(executor, "print(add(40, 2))") == "42\n"
    intents = ["first: starting add", "second: starting add"]
    assert [*intents, "add runs", "first: finished ok", "second: finished ok"] == EVENTS
    detach[0]()
    detach[0]()
    EVENTS.clear()
    assert await out(executor, "print(add(40, 2))") == "42\n"
    assert EVENTS == ["second: starting add", "add runs", "second: finished ok"]
    detach[1]()
    EVENTS.clear()
    assert await out(executor, "print(add(40, 2))") == "42\n"
    assert EVENTS == ["add runs"]


async def test_what_is_attached_during_a_block_gets_the_next_one_and_what_is_detached_gets_nothing_more(executor):
    detach_early = executor.attach(recorder=Recorder("early"), observers=[Watcher("early")])
    running = asyncio.ensure_future(run(executor, "wait()"))
    await until(lambda: "wait runs" in EVENTS)
    detach_early()
    detach_late = executor.attach(observers=[Watcher("late")])
    GATE[-1].set()
    assert (await running).output == ""
    await out(executor, "1")
    detach_late()
    assert [event for event in EVENTS if "sandbox" not in event] == [
        *("early: block_started", "early: starting wait", "early: call_started", "wait runs"),
        *("late: block_started", "late: block_finished"),
    ]
