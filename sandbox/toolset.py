"""The host tools of a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from autogen_codeact.sandbox.observers import BlockId
from autogen_codeact.sandbox.run_context import CodeAndLanguage, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.broker import BlockCalls, ToolBroker
from autogen_codeact.sandbox.tools.function import FunctionHostTool
from autogen_codeact.sandbox.tools.limits import ToolLimits
from autogen_codeact.sandbox.tools.threads import Threads
from autogen_codeact.sandbox.tools.tool import HostTool, is_host_tool

Tool = Callable[..., Any] | HostTool
"""A typed Python function, sync or async, or an object of the `HostTool` protocol."""


@runtime_checkable
class Toolset(Protocol):
    """The host tools of one sandbox; `executors` has one for AutoGen's tools and workbenches."""

    @property
    def broker(self) -> ToolBroker:
        """What runs the tools."""
        ...

    @property
    def known(self) -> tuple[HostTool, ...] | None:
        """All tools; None before `start` if there are sources of tools to start."""
        ...

    async def start(self) -> tuple[HostTool, ...]:
        """Start the sources of tools that don't run yet, and return all tools."""
        ...

    async def stop(self) -> None:
        """Stop the sources of tools."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return what the runner gets at its start."""
        ...

    def started(self, settings: Mapping[str, Any] | None) -> None:
        """Record which tools a sandbox has known since its start."""
        ...

    def added_sources(self) -> list[tuple[str, Any]]:
        """Return names and definitions of tools that were added after the sandbox's start."""
        ...

    def block(self, block: CodeAndLanguage, context: RunContext, ident: BlockId) -> BlockCalls:
        """Return the handler of the calls of one block (its `code` and `language`)."""
        ...


class FunctionTools:
    """A fixed list of typed functions and host tools.

    Args:
        tools: The tools.
        limits: How much a block may use of them. None for the default.
        approve: Called before each call, which is made only if it approves. None to allow all.

    Raises:
        TypeError: Something is not a tool.
        ValueError: A tool can't be used; the message says why.
    """

    def __init__(self, tools: Sequence[Tool], limits: ToolLimits | None, approve: ApproveTool | None) -> None:
        self._threads = Threads()
        self.known = tuple(self._adapted(tool) for tool in tools)
        self.broker = ToolBroker(self.known, limits or ToolLimits(), approve)

    def _adapted(self, tool: Tool) -> HostTool:
        if is_host_tool(tool):
            return tool
        if not callable(tool):
            raise TypeError(f"{tool!r} is not a tool: give a typed function")
        return FunctionHostTool(tool, self._threads)

    async def start(self) -> tuple[HostTool, ...]:
        """Return all tools; there is nothing to start."""
        return self.known

    async def stop(self) -> None:
        """End the threads in which functions ran."""
        self._threads.close()

    def settings(self) -> dict[str, Any]:
        """Return what the runner gets at its start."""
        return self.broker.settings()

    def started(self, settings: Mapping[str, Any] | None) -> None:
        """Do nothing: no tool is added later."""

    def added_sources(self) -> list[tuple[str, Any]]:
        """Return no tools: none is added later."""
        return []

    def block(self, block: CodeAndLanguage, context: RunContext, ident: BlockId) -> BlockCalls:
        """Return the handler of the calls of one block."""
        return self.broker.block(block.code, block.language, context, ident)
