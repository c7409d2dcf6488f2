"""AutoGen's workbenches as sources of host tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench, ToolSchema, Workbench

from autogen_codeact.executors.tools.adapters import answer_of, with_token
from autogen_codeact.executors.tools.base_tool import AutoGenTool
from codeact_sandbox.tools.mcp_client import McpSource
from codeact_sandbox.tools.names import distinct, identifier
from codeact_sandbox.tools.payloads import is_small, offload
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.tools.source import STOP_TIMEOUT_S, ToolSource
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer

_STATIC = (StaticWorkbench, StaticStreamWorkbench)


def source_of(workbench: Workbench) -> ToolSource:
    """Make the source of a workbench's tools. A subclass of `McpWorkbench` may mean to change what it lists and calls."""
    kind = type(workbench)
    is_mcp = kind.__name__ == "McpWorkbench" and kind.__module__.startswith("autogen_ext.tools.mcp")
    return McpWorkbenchSource(workbench) if is_mcp else WorkbenchSource(workbench)


class WorkbenchSource(ToolSource):
    def __init__(self, workbench: Workbench) -> None:
        super().__init__(type(workbench).__name__)
        self._workbench: Any = workbench
        if type(workbench) not in _STATIC:
            self.label = identifier(self.name)

    async def open(self) -> None:
        await self._workbench.start()

    async def close(self) -> None:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await self._workbench.stop()

    async def list_tools(self) -> Sequence[HostToolProtocol]:
        if type(self._workbench) in _STATIC:
            return self._static_tools()
        schemas = await self._workbench.list_tools()
        # In a thread: a schema may be large.
        names = distinct(schema["name"] for schema in schemas)
        return await asyncio.to_thread(lambda: list(map(self._tool, schemas, names)))

    def _static_tools(self) -> Sequence[HostToolProtocol]:
        """Return the tools themselves: called through the workbench, each would return text only."""
        tools = []
        for tool in self._workbench._tools:
            override = self._workbench._tool_overrides.get(tool.name)
            name, description = (override.name, override.description) if override is not None else (None, None)
            tools.append(AutoGenTool(tool, name=name, description=description))
        return tools

    def _tool(self, schema: ToolSchema, shown: str) -> HostToolProtocol:
        name = schema["name"]

        async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
            self.check_loop()
            result = await with_token(lambda token: self._workbench.call_tool(name, arguments, token))
            return await offload(not is_small(result), lambda: answer_of(result, name))

        description, parameters = str(schema.get("description") or ""), schema.get("parameters")
        return SchemaHostTool(shown, description, parameters or {}, call, f"the {self.name}")


class McpWorkbenchSource(McpSource):
    """The tools of an `McpWorkbench`, in a session of their own.

    The workbench itself leaves out the definitions of nested types, and structured results.
    """

    def __init__(self, workbench: Any) -> None:
        super().__init__(type(workbench).__name__)
        self._workbench = workbench

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        from autogen_ext.tools.mcp import McpSessionActor, create_mcp_server_session  # noqa: PLC0415 - optional

        server, model = self._workbench.server_params, self._workbench._model_client
        sample = McpSessionActor(server, model)._sampling_callback if model is not None else None
        async with create_mcp_server_session(server, sample) as session:
            await session.initialize()
            yield session

    def described(self, raw: Any) -> tuple[str, str]:
        """Return the name and the description of a tool, which the workbench may override."""
        override = self._workbench._tool_overrides.get(raw.name)
        name, description = super().described(raw)
        return (override.name or name, override.description or description) if override else (name, description)
