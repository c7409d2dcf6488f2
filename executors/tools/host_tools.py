"""The host tools of an executor: functions, AutoGen's tools, workbenches and host tools."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from autogen_core.tools import BaseTool, Tool, Workbench

from autogen_codeact.executors.tools.adapters import AUTOGEN, HostToolWithToken, as_host_tool
from autogen_codeact.executors.tools.approval import with_tokens
from autogen_codeact.executors.tools.configs import dump_all, dump_approval, dump_tools, loaded_from
from autogen_codeact.executors.tools.described import BaseToolHostTool, is_tool
from autogen_codeact.executors.tools.workbench import OpenWorkbench
from autogen_codeact.sandbox.observers import BlockId
from autogen_codeact.sandbox.run_context import CodeAndLanguage, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.broker import BlockCalls
from autogen_codeact.sandbox.tools.function import FunctionHostTool
from autogen_codeact.sandbox.tools.limits import ToolLimits
from autogen_codeact.sandbox.tools.tool import HostTool, is_host_tool
from autogen_codeact.sandbox.toolset import Toolset

ToolLike = Callable[..., Any] | BaseTool[Any, Any] | Workbench | HostTool | HostToolWithToken
"""What can be passed as a tool: a typed function, an AutoGen tool, a workbench of such tools, or a host tool."""


class HostTools(Toolset):
    """The tools of an executor; those of workbenches are known once they are started.

    Args:
        tools: Functions, AutoGen tools, workbenches and host tools.
        limits: How much a block may use of them. None for the default.
        approve: Called before each call, which is made only if it approves. None to allow all.

    Raises:
        TypeError: Something is no tool, or `approve` can't be called.
        ValueError: A tool can't be used; the message says why.
    """

    def __init__(
        self, tools: Sequence[ToolLike] = (), limits: ToolLimits | None = None, approve: ApproveTool | None = None
    ) -> None:
        super().__init__((), limits, with_tokens(_checked(approve)))
        self._approve = self._approving = approve
        self._added: tuple[ToolLike, ...] = ()
        self._ready: list[HostTool | Workbench] = []
        self._in_use: tuple[HostTool, ...] = ()
        self._benches: list[OpenWorkbench] = []
        self._given = self._add(tools)

    def add(self, tools: Sequence[ToolLike], approve: ApproveTool | None = None) -> None:
        """Add an agent's tools, which the agent's config keeps; the tools of workbenches are known after `start`.

        Tools that were added before are ignored, so that agents can share an executor.

        Raises:
            TypeError: Something is no tool, or `approve` can't be called.
            ValueError: A tool can't be used, or another function approves already.
        """
        if approve is not None and self._approving not in (None, approve):
            raise ValueError("approve_tool was given more than once: give it to the executor or to one of its agents")
        checked = _checked(approve)
        if isinstance(tools, Sequence) and not isinstance(tools, str):
            here = (*self._given, *self._added)
            tools = [each for each in tools if not any(_is_same(each, tool) for tool in here)]
        self._added += self._add(tools)
        self._approving = self._approving or checked
        self.broker.approve = with_tokens(self._approving)

    def offer(self, tool: HostTool) -> None:
        """Add an internal tool: no config keeps it, no list shows it, and its calls need no approval.

        Args:
            tool: The tool; nothing is done if it has been added before.

        Raises:
            ValueError: Another tool has its name.
        """
        offered = as_host_tool(tool)
        if self.broker.tools.get(tool.name) != offered:
            self.broker.replace((), [offered])
            self.broker.without_approval.add(tool.name)

    def _add(self, tools: Sequence[ToolLike]) -> tuple[ToolLike, ...]:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
            raise TypeError(f"tools must be a list of tools, not a {type(tools).__name__}.")
        ready = [each if isinstance(each, Workbench) else self._adapt(each) for each in tools]
        _check_names([each for each in self._ready + ready if not isinstance(each, Workbench)])
        self._ready += ready
        if ready:
            self._know()
            self._use(self.known or ())
        return tuple(tools)

    def _know(self) -> None:
        """List the tools if no workbench has to be started for it."""
        tools = [each for each in self._ready if not isinstance(each, Workbench)]
        self.known = tuple(tools) if len(tools) == len(self._ready) else None

    def _use(self, tools: Sequence[HostTool]) -> None:
        self.broker.replace(self._in_use, tools)
        self._in_use = tuple(tools)

    def _adapt(self, tool: ToolLike) -> HostTool:
        if is_host_tool(tool):
            return as_host_tool(tool)
        if is_tool(tool):
            return BaseToolHostTool(cast(Tool, tool))
        if callable(tool):
            return FunctionHostTool(tool, self._threads, AUTOGEN)
        raise TypeError(
            f"{tool!r} is no tool: give a function, an AutoGen tool, a Workbench, or an object with name, signature, "
            "description, source and run."
        )

    async def start(self) -> tuple[HostTool, ...]:
        """Start the workbenches that have not been started, and list their tools.

        Returns:
            All host tools, in the order given.

        Raises:
            TimeoutError: A workbench did not answer within 60 s.
            ValueError: Two tools would have one name.
            Exception: What a workbench raised; those that were started are stopped again.
        """
        if self.known is not None:
            return self.known
        tools: list[HostTool] = []
        running = {id(bench.workbench): bench for bench in self._benches}
        try:
            for each in self._ready:
                if not isinstance(each, Workbench):
                    tools.append(each)
                    continue
                bench = running.get(id(each)) or OpenWorkbench(each)
                if bench not in self._benches:
                    self._benches.append(bench)
                tools += await bench.start()
            _check_names(tools)
        except BaseException:
            with contextlib.suppress(Exception):
                await self.stop()
            raise
        self._use(tools)
        self.known = tuple(tools)
        return self.known

    async def stop(self) -> None:
        """Stop the workbenches that were started here; may be repeated.

        Raises:
            Exception: What the first one raised that did not stop; the others are stopped all the same.
        """
        await super().stop()
        benches, self._benches = self._benches, []
        self._know()
        ends = await asyncio.gather(*(bench.stop() for bench in benches), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def block(self, block: CodeAndLanguage, context: RunContext, ident: BlockId) -> BlockCalls:
        """Return what answers the calls of one block."""
        if context.tools:
            context = replace(context, tools={name: as_host_tool(tool) for name, tool in context.tools.items()})
        return super().block(block, context, ident)

    def dump(self) -> dict[str, Any]:
        """Write the fields `tools`, `tool_limits` and `approve_tool` of an executor's config.

        Raises:
            ValueError: Some tools are no components, or `approve_tool` isn't; the message names all of them.
        """
        parts = dump_all(tools=lambda: dump_tools(self._given), approve_tool=lambda: dump_approval(self._approve))
        limits = self.broker.limits
        return {**parts, "tool_limits": None if limits == ToolLimits() else limits}


def _checked(approve: ApproveTool | None) -> ApproveTool | None:
    if approve is not None and (not callable(approve) or inspect.isclass(approve)):
        raise TypeError(f"approve_tool must be a function or a policy such as AskPerson(), not {approve!r}")
    return approve


def _check_names(tools: Sequence[HostTool]) -> None:
    known = {"ToolError", "ToolRefused"}
    for tool in tools:
        if tool.name in known:
            origin = getattr(tool, "origin", f"a {type(getattr(tool, 'tool', tool)).__name__}")
            raise ValueError(
                f"Two tools, or a tool and an exception, would be called `{tool.name}` in the sandbox; the second is {origin}. "
                "Rename one (a workbench has tool_overrides, a FunctionTool takes name=)."
            )
        known.add(tool.name)


def _is_same(one: ToolLike, other: ToolLike) -> bool:
    if one is other or one == other:
        return True
    # An agent and its executor that were dumped with the same tool are loaded with one each.
    config = loaded_from(one)
    return config is not None and config == loaded_from(other)
