"""Tools of a sandbox: sources that are started first; recorders, which are awaited, and observers, which watch everything."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from codeact_sandbox import AsyncSandbox, ToolApproval, ToolApprovalRequest, ToolSource
from codeact_sandbox.tools import source
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.tools.toolset import Toolset
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Shop(ToolSource):
    """A server with one tool, which tells what was done with it."""

    def __init__(self, name: str = "stock", *, fails: bool = False, hangs: bool = False) -> None:
        super().__init__("shop")
        self.tool_name, self.fails, self.hangs = name, fails, hangs
        self.done: list[str] = []

    async def open(self) -> None:
        self.done.append("open")
        if self.hangs:
            await asyncio.sleep(60)

    async def list_tools(self) -> Sequence[HostToolProtocol]:
        self.done.append("list")
        if self.fails:
            raise OSError("the shop is closed")
        return [
            SchemaHostTool(self.tool_name, "Count.", {"properties": {"fruit": {"type": "string"}}}, self.call, "shop")
        ]

    async def call(self, arguments: Any) -> ToolAnswer:
        self.check_loop()
        return ToolAnswer(f"3 {arguments['fruit']}")

    async def close(self) -> None:
        self.done.append("close")


async def test_tools_of_a_source_are_known_after_its_start() -> None:
    shop = Shop()
    tools = Toolset([double, shop])
    assert tools.known is None
    assert [tool.name for tool in await tools.start()] == ["double", "stock"]
    assert [tool.name for tool in tools.known or ()] == list(tools.broker.tools) == ["double", "stock"]
    await tools.start()
    await tools.stop()
    assert tools.known is None
    assert shop.done == ["open", "list", "close"]
    await tools.start()
    assert shop.done == ["open", "list", "close", "open", "list"]


async def test_failed_start_stops_the_sources_that_were_started() -> None:
    first, second = Shop(), Shop("other", fails=True)
    with pytest.raises(OSError, match=r"^the shop is closed$"):
        await Toolset([first, second]).start()
    assert first.done == second.done == ["open", "list", "close"]


async def test_source_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "START_TIMEOUT_S", 0.05)
    shop = Shop(hangs=True)
    message = "^The shop did not list its tools within 0.05 s; see whether its server starts by hand.$"
    with pytest.raises(TimeoutError, match=message):
        await Toolset([shop]).start()
    assert shop.done == ["open", "close"]


async def test_two_tools_of_one_name_are_refused() -> None:
    message = "Two tools, or a tool and an exception, would be called `double` in the sandbox; the second is "
    with pytest.raises(ValueError, match=f"^{message}the function {__name__}.double. Rename one.$"):
        Toolset([double, double])
    with pytest.raises(ValueError, match=f"^{message}`double` of shop. Rename one.$"):
        await Toolset([double, Shop("double")]).start()


events: list[tuple[Any, ...]] = []


def add(a: int, b: int) -> int:
    """Add two numbers."""
    events.append(("add runs", a, b))
    return a + b


class Recorder:
    async def call_starting(self, intent: Any) -> None:
        events.append(("recorded intent", intent.number, intent.name, intent.arguments, intent.block.block))

    async def call_finished(self, finished: Any) -> None:
        events.append(("recorded result", finished.call.result))


class Observer:
    def sandbox_started(self, event: Any) -> None:
        events.append(("started", event.backend, event.duration_s > 0))

    def sandbox_stopped(self, event: Any) -> None:
        events.append(("stopped", event.error))

    def block_started(self, event: Any) -> None:
        events.append(("block", event.block, event.language, event.code))

    def block_finished(self, event: Any) -> None:
        events.append(
            ("block finished", event.started.block, None if event.result is None else event.result.outcome, event.error)
        )

    def call_started(self, event: Any) -> None:
        events.append(("call", event.name))

    def call_finished(self, event: Any) -> None:
        events.append(("call finished", event.call.outcome))
        raise RuntimeError("an observer that fails disturbs nothing")


async def approve(request: ToolApprovalRequest) -> ToolApproval:
    events.append(("approved", request.name))
    return ToolApproval(True)


@pytest.mark.usefixtures("bubblewrap")
async def test_events_come_in_this_order() -> None:
    events.clear()
    watching = {"recorder": Recorder(), "observers": [Observer()]}
    box = AsyncSandbox("bubblewrap", tools=[add], approve_tool=approve, **watching)
    async with box:
        assert (await box.run("x = add(40, 2)\nx")).output == "42\n"
        await box.run("1 / 0")
    name = box.name
    assert name.startswith("codeact-")
    assert events == [
        ("started", "bubblewrap", True),
        ("block", 1, "python", "x = add(40, 2)\nx"),
        ("approved", "add"),
        ("recorded intent", 1, "add", {"a": 40, "b": 2}, 1),
        ("call", "add"),
        ("add runs", 40, 2),
        ("recorded result", 42),
        ("call finished", "ok"),
        ("block finished", 1, "ok", None),
        ("block", 2, "python", "1 / 0"),
        ("block finished", 2, "error", None),
        ("stopped", None),
    ]
