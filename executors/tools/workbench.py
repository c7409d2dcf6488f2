"""AutoGen's workbenches as sources of host tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench, ToolSchema, Workbench

from autogen_codeact.executors.tools.adapters import answer_of, with_token
from autogen_codeact.executors.tools.base_tool import AutoGenTool
from codeact_sandbox.tools.json_schema import plain_schema
from codeact_sandbox.tools.mcp_results import McpResult, mcp_tool
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
    return McpSource(workbench) if is_mcp else WorkbenchSource(workbench)


class WorkbenchSource(ToolSource):
    """The tools of a workbench."""

    def __init__(self, workbench: Workbench) -> None:
        super().__init__(type(workbench).__name__)
        self._workbench: Any = workbench
        if type(workbench) not in _STATIC:
            self.label = identifier(self.name)

    @property
    def is_running(self) -> bool:
        """Whether its owner has started it; of AutoGen's only `McpWorkbench` can tell."""
        return getattr(self._workbench, "_actor", None) is not None

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


class McpSource(WorkbenchSource):
    """The tools of an `McpWorkbench`.

    The workbench leaves out the definitions of nested types, and structured results. They are read from its session.
    """

    async def close(self) -> None:
        """Stop it, also if its server does not answer."""
        working: asyncio.Task[None] | None = getattr(self._workbench._actor, "_actor_task", None)
        # Until the server has answered the first request, its actor processes no other.
        if self._workbench.initialize_result is not None:
            with contextlib.suppress(TimeoutError):
                await super().close()
                return
        if working is not None:
            working.cancel()
            await asyncio.wait({working}, timeout=STOP_TIMEOUT_S)
        if self.is_running:
            await self._workbench.stop()

    async def list_tools(self) -> Sequence[HostToolProtocol]:
        schemas = await self._workbench.list_tools()
        answer = await self._request("list_tools", None)
        names = distinct(schema["name"] for schema in schemas)
        listed = list(zip(schemas, answer.tools, names, strict=True))
        return await asyncio.to_thread(lambda: [self._mcp_tool(*each) for each in listed])

    def _mcp_tool(self, schema: ToolSchema, raw: Any, shown: str) -> HostToolProtocol:
        output = plain_schema(raw.outputSchema or {}, f"the results of `{raw.name}` of the {self.name}")
        # The session would check results against the same object, and a pattern in it can hold up this program for ever.
        (raw.outputSchema or {}).clear()

        async def call(arguments: Mapping[str, Any]) -> McpResult:
            self.check_loop()
            answer = await self._request("call_tool", {"name": raw.name, "kargs": dict(arguments)})
            return McpResult(answer.content, answer.isError, answer.structuredContent)

        description = str(schema.get("description") or "")
        return mcp_tool(shown, description, (raw.inputSchema, output), call, f"the {self.name}")

    async def _request(self, kind: str, arguments: Mapping[str, Any] | None) -> Any:
        # The actor returns a coroutine that does the work.
        actor = self._workbench._actor
        if actor is None:
            raise RuntimeError("The McpWorkbench has been stopped: start the executor again.")
        working: Awaitable[Any] = await actor.call(kind, arguments)
        return await working
