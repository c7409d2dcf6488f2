"""AutoGen's workbenches as sources of host tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench, ToolSchema, Workbench

from autogen_codeact.executors.tools.adapters import answer_of, with_token
from autogen_codeact.executors.tools.base_tool import from_tool
from autogen_codeact.executors.tools.mcp import McpTools, is_mcp, is_running, stop_mcp
from autogen_codeact.sandbox.tools.payloads import is_small, offload
from autogen_codeact.sandbox.tools.schema_tool import SchemaHostTool
from autogen_codeact.sandbox.tools.tool import HostTool, ToolAnswer

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

    async def start(self) -> Sequence[HostTool]:
        """Start it, unless it is running, and list its tools.

        Raises:
            TimeoutError: It did not answer within 60 s.
            ValueError: One of its tools can't be used.
            Exception: What it raised.
        """
        kind = type(self.workbench).__name__
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                if not self._started and not is_running(self.workbench):  # of AutoGen's only McpWorkbench can tell
                    self._started = True
                    await self.workbench.start()
                self._loop = asyncio.get_running_loop()
                return await self._tools()
        except TimeoutError as error:
            raise TimeoutError(
                f"The {kind} did not list its tools within {START_TIMEOUT_S:g} s; see whether its server starts by hand."
            ) from error

    async def _tools(self) -> Sequence[HostTool]:
        kind = type(self.workbench)
        if kind in (StaticWorkbench, StaticStreamWorkbench):
            return _static_tools(self.workbench)
        if is_mcp(self.workbench):
            return await McpTools(self.workbench, self._checked).list()
        schemas = await self.workbench.list_tools()
        # In a thread: a schema may be large.
        return await asyncio.to_thread(lambda: list(map(self._tool, schemas)))

    def _tool(self, schema: ToolSchema) -> HostTool:
        name = schema["name"]

        async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
            self._checked()
            result = await with_token(lambda token: self.workbench.call_tool(name, arguments, token))
            return await offload(not is_small(result), lambda: answer_of(result, name))

        origin = f"the {type(self.workbench).__name__}"
        return SchemaHostTool(name, str(schema.get("description") or ""), schema.get("parameters") or {}, call, origin)

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
            return  # it ended with its event loop
        if is_mcp(self.workbench):
            await stop_mcp(self.workbench, STOP_TIMEOUT_S)
            return
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await self.workbench.stop()


def _static_tools(workbench: Workbench) -> Sequence[HostTool]:
    """Return the tools themselves: called through the workbench, each would return text only."""
    overrides = getattr(workbench, "_tool_overrides", {})
    tools = []
    for tool in getattr(workbench, "_tools", []):
        override = overrides.get(tool.name)
        name, description = (override.name, override.description) if override is not None else (None, None)
        tools.append(from_tool(tool, name=name, description=description))
    return tools
