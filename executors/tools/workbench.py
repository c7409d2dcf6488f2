"""AutoGen's workbenches as sources of host tools: started, asked for their tools, and stopped again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench, ToolResult, Workbench

from autogen_codeact.executors.tools.described import BaseToolHostTool, SchemaHostTool
from autogen_codeact.executors.tools.mcp import McpTools, is_mcp, is_running, stop_mcp
from autogen_codeact.sandbox.tools.shapes import Names
from autogen_codeact.sandbox.tools.tool import HostTool

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class OpenWorkbench:
    """A workbench in use.

    Args:
        workbench: The workbench.
    """

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench
        self._started = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, names: Names) -> Sequence[HostTool]:
        """Start it, unless it says that it has been, and ask for its tools.

        Args:
            names: The names that all tools share.

        Raises:
            TimeoutError: It did not answer within 60 s.
            ValueError: One of its tools has a name that is taken.
            Exception: What it raised.
        """
        kind = type(self.workbench).__name__
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                if not self._started and not is_running(self.workbench):  # of AutoGen's only McpWorkbench can tell
                    self._started = True
                    await self.workbench.start()
                self._loop = asyncio.get_running_loop()
                return await self._tools(names)
        except TimeoutError as error:
            raise TimeoutError(
                f"The {kind} did not list its tools within {START_TIMEOUT_S:g} s; see whether its server starts by hand."
            ) from error

    async def _tools(self, names: Names) -> Sequence[HostTool]:
        kind = type(self.workbench)
        if kind in (StaticWorkbench, StaticStreamWorkbench):
            return _static_tools(self.workbench, names)
        if is_mcp(self.workbench):
            return await McpTools(self.workbench, self._checked).list(names)
        schemas = await self.workbench.list_tools()
        # In a thread: a schema may be large.
        return await asyncio.to_thread(
            lambda: [
                SchemaHostTool(schema, names, self._caller(schema["name"]), f"the {kind.__name__}")
                for schema in schemas
            ]
        )

    def _caller(self, name: str) -> Callable[[Mapping[str, Any], CancellationToken], Awaitable[ToolResult]]:
        async def call(arguments: Mapping[str, Any], token: CancellationToken) -> ToolResult:
            self._checked()
            return await self.workbench.call_tool(name, arguments, token)

        return call

    def _checked(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                f"The {type(self.workbench).__name__} was started in another event loop and works in no other: stop and "
                "start the executor in this one."
            )

    async def stop(self) -> None:
        """Stop it, if it was started here.

        Raises:
            TimeoutError: It did not stop within 10 s.
        """
        if not self._started:
            return
        self._started = False
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            return  # it went down with its event loop
        if is_mcp(self.workbench):
            await stop_mcp(self.workbench, STOP_TIMEOUT_S)
            return
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await self.workbench.stop()


def _static_tools(workbench: Workbench, names: Names) -> Sequence[HostTool]:
    """The tools themselves: asked through the workbench, each would give back text only."""
    overrides = getattr(workbench, "_tool_overrides", {})
    tools = []
    for tool in getattr(workbench, "_tools", []):
        override = overrides.get(tool.name)
        name, description = (override.name, override.description) if override is not None else (None, None)
        tools.append(BaseToolHostTool(tool, names, name=name, description=description))
    return tools
