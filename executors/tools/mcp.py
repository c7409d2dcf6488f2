"""Tools of an MCP server, through AutoGen's `McpWorkbench`.

The workbench leaves out the definitions of nested types, and structured results. They are read from its session; a subclass is
used as any other workbench.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from autogen_core.tools import ToolSchema, Workbench

from autogen_codeact.sandbox.tools.mcp_results import answer_of, result_schema
from autogen_codeact.sandbox.tools.schema_tool import SchemaHostTool
from autogen_codeact.sandbox.tools.tool import HostTool, ToolAnswer


def is_mcp(workbench: Workbench) -> bool:
    """Whether it is AutoGen's `McpWorkbench` itself; a subclass may mean to change what it lists and calls."""
    kind = type(workbench)
    return kind.__name__ == "McpWorkbench" and kind.__module__.startswith("autogen_ext.tools.mcp")


def is_running(workbench: Workbench) -> bool:
    """Whether an `McpWorkbench` has been started, and not stopped."""
    return getattr(workbench, "_actor", None) is not None


async def stop_mcp(workbench: Workbench, timeout: float) -> None:
    """Stop an `McpWorkbench`, also one whose server does not answer.

    Args:
        workbench: The workbench.
        timeout: Seconds that its server may take.
    """
    actor: Any = getattr(workbench, "_actor", None)
    working: asyncio.Task[None] | None = getattr(actor, "_actor_task", None)
    # Until the server has answered the first request, its actor processes no other.
    if getattr(workbench, "initialize_result", None) is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await workbench.stop()
                return
    if working is not None:
        working.cancel()
        await asyncio.wait({working}, timeout=timeout)
    if is_running(workbench):
        await workbench.stop()


class McpTools:
    """The tools of a running `McpWorkbench`.

    Args:
        workbench: The workbench.
        check: Called before each call; raises if the workbench can't be used.
    """

    def __init__(self, workbench: Workbench, check: Callable[[], None]) -> None:
        self._workbench = workbench
        self._check = check

    async def list(self) -> Sequence[HostTool]:
        """List the tools.

        Raises:
            ValueError: One of them can't be used.
            Exception: The server did not start, or does not answer.
        """
        schemas = await self._workbench.list_tools()
        answer: Any = await self._request("list_tools", None)
        pairs = list(zip(schemas, answer.tools, strict=True))
        # In a thread: a schema may be large.
        return await asyncio.to_thread(lambda: [self._tool(schema, raw) for schema, raw in pairs])

    def _tool(self, schema: ToolSchema, raw: Any) -> HostTool:
        result, wrapped = result_schema(raw.outputSchema)

        async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
            self._check()
            answer: Any = await self._request("call_tool", {"name": raw.name, "kargs": dict(arguments)})
            return answer_of(answer, schema["name"], structured=result is not None, wrapped=wrapped)

        description = str(schema.get("description") or "")
        return SchemaHostTool(schema["name"], description, raw.inputSchema, call, "the McpWorkbench", result=result)

    async def _request(self, kind: str, arguments: Mapping[str, Any] | None) -> Any:
        # The actor returns a coroutine that does the work.
        actor: Any = getattr(self._workbench, "_actor", None)
        if actor is None:
            raise RuntimeError("The McpWorkbench has been stopped: start the executor again.")
        working: Awaitable[Any] = await actor.call(kind, arguments)
        return await working
