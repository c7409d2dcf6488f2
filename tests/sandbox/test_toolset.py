"""`Toolset`: tools that are added, and tools of sources that are started first."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from codeact_sandbox import ToolSource
from codeact_sandbox.tools import source
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.toolset import Toolset
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Shop(ToolSource):
    """A server with one tool, which tells what was done with it."""

    def __init__(self, name: str = "stock", *, fails: bool = False, hangs: bool = False, running: bool = False) -> None:
        super().__init__("shop")
        self.tool_name, self.fails, self.hangs, self.running = name, fails, hangs, running
        self.done: list[str] = []

    @property
    def is_running(self) -> bool:
        return self.running

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
