"""The host tools of a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autogen_codeact.sandbox.observers import BlockId
from autogen_codeact.sandbox.run_context import CodeAndLanguage, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.broker import BlockCalls, ToolBroker
from autogen_codeact.sandbox.tools.function import FunctionHostTool
from autogen_codeact.sandbox.tools.limits import ToolLimits
from autogen_codeact.sandbox.tools.stub import sources
from autogen_codeact.sandbox.tools.threads import Threads
from autogen_codeact.sandbox.tools.tool import HostTool, is_host_tool

Tool = Callable[..., Any] | HostTool
"""A typed Python function, sync or async, or an object of the `HostTool` protocol."""


class Toolset:
    """Typed functions and host tools; `executors` has one for AutoGen's tools and workbenches, to which tools can be added.

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
        self._at_start: frozenset[str] = frozenset()
        ready = tuple(self._adapted(tool) for tool in tools)
        self.known: tuple[HostTool, ...] | None = ready
        """All tools; None before `start` if there are sources of tools to start."""
        self.broker = ToolBroker(ready, limits or ToolLimits(), approve)
        """What runs the tools."""

    def _adapted(self, tool: Tool) -> HostTool:
        if is_host_tool(tool):
            return tool
        if not callable(tool):
            raise TypeError(f"{tool!r} is not a tool: give a typed function")
        return FunctionHostTool(tool, self._threads)

    async def start(self) -> tuple[HostTool, ...]:
        """Start the sources of tools that don't run yet, and return all tools."""
        return self.known or ()

    async def stop(self) -> None:
        """Stop the sources of tools, and end the threads in which functions ran."""
        self._threads.close()

    def settings(self) -> dict[str, Any]:
        """Return what the runner gets at its start."""
        return self.broker.settings()

    def started(self, settings: Mapping[str, Any] | None) -> None:
        """Record which tools a sandbox has known since its start.

        Args:
            settings: The settings of its runner.
        """
        self._at_start = frozenset(name for name, _ in settings["sources"]) if settings is not None else frozenset()

    def added_sources(self) -> list[tuple[str, Any]]:
        """Return the definitions of tools added since the start; each block gets all of them, in case an earlier one failed."""
        if self.broker.tools.keys() <= self._at_start:
            return []
        return [each for each in sources(list(self.broker.tools.values())) if each[0] not in self._at_start]

    def block(self, block: CodeAndLanguage, context: RunContext, ident: BlockId) -> BlockCalls:
        """Return the handler of the calls of one block (its `code` and `language`)."""
        return self.broker.block(block.code, block.language, context, ident)
