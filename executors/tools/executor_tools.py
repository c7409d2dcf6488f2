"""The tools of one executor: started and stopped with it, and what its config keeps of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autogen_core import ComponentBase, ComponentModel

from autogen_codeact.executors.tools.adapters import as_host_tool
from autogen_codeact.executors.tools.approval import with_tokens
from autogen_codeact.executors.tools.host_tools import HostTools, ToolLike
from autogen_codeact.executors.tools.omitted import refuse_functions
from autogen_codeact.sandbox.observers import BlockId
from autogen_codeact.sandbox.run_context import CodeAndLanguage, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.broker import BlockCalls, ToolBroker
from autogen_codeact.sandbox.tools.limits import ToolLimits
from autogen_codeact.sandbox.tools.stub import sources
from autogen_codeact.sandbox.tools.tool import HostTool


class ExecutorTools:
    """The tools of one executor.

    Args:
        tools: Functions, AutoGen tools, workbenches and host tools.
        limits: How much a block may use of them, or None for the default.
        approve: Approves each call; None to allow all.

    Raises:
        TypeError: Something is no tool, or `approve` can't be called.
        ValueError: A tool can't be used; the message says why.
    """

    def __init__(self, tools: Sequence[ToolLike], limits: ToolLimits | None, approve: ApproveTool | None) -> None:
        self._limits = limits if limits is not None else ToolLimits()
        self._approve = self._approving = _checked(approve)
        self._tools = HostTools(tools)
        self._in_use: tuple[HostTool, ...] = ()
        self._at_start: frozenset[str] = frozenset()
        self.broker = ToolBroker((), self._limits, with_tokens(approve))
        self.known = self._tools.tools
        """All tools; None if there are workbenches that have not been started."""
        self._use(self.known or ())

    def add(self, tools: Sequence[ToolLike], approve: ApproveTool | None) -> None:
        """Add an agent's tools; the agent's config keeps them.

        Raises:
            TypeError: Something is no tool, or `approve` can't be called.
            ValueError: A tool can't be used, or another function approves already.
        """
        if approve is not None and self._approving not in (None, approve):
            raise ValueError("approve_tool was given more than once: give it to the executor or to one of its agents")
        checked = _checked(approve)
        self._tools.add(tools)
        self._approving = self._approving or checked
        self.broker.approve = with_tokens(self._approving)
        self.known = self._tools.tools
        self._use(self.known or ())

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

    async def start(self) -> tuple[HostTool, ...]:
        """Start the workbenches that have not been started.

        Returns:
            All tools.

        Raises:
            Exception: What a workbench raised.
        """
        self.known = await self._tools.start()
        self._use(self.known)
        return self.known

    async def stop(self) -> None:
        """Stop the workbenches that were started here."""
        try:
            await self._tools.stop()
        finally:
            self.known = self._tools.tools

    def _use(self, tools: Sequence[HostTool]) -> None:
        self.broker.replace(self._in_use, tools)
        self._in_use = tuple(tools)

    def settings(self) -> dict[str, Any]:
        """Return the settings with which the runner starts."""
        return self.broker.settings()

    def started(self, settings: Mapping[str, Any] | None) -> None:
        """Note which tools a sandbox knows since its start.

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
        """Return what answers the calls of one block."""
        if context.tools:
            context = replace(context, tools={name: as_host_tool(tool) for name, tool in context.tools.items()})
        return self.broker.block(block.code, block.language, context, ident)

    def dump(self) -> dict[str, Any]:
        """Write the fields `tools`, `tool_limits` and `approve_tool` of an executor's config.

        Raises:
            ValueError: Some tools are no components, or `approve_tool` isn't; the message names all of them.
        """
        parts = dump_all(tools=self._tools.dump, approve_tool=lambda: dump_approval(self._approve))
        return {**parts, "tool_limits": None if self._limits == ToolLimits() else self._limits}


def dump_all(**parts: Callable[[], Any]) -> dict[str, Any]:
    """Write parts of a config.

    Args:
        parts: What writes each of them, by field.

    Returns:
        The fields.

    Raises:
        ValueError: Some can't be written; the message names all of them, one per line.
    """
    written: dict[str, Any] = {}
    refused: list[ValueError] = []
    for name, write in parts.items():
        try:
            written[name] = write()
        except ValueError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise ValueError("\n".join(dict.fromkeys(map(str, refused))))
    return written


def dump_approval(approve: ApproveTool | None) -> ComponentModel | None:
    """Write the approval policy for a config.

    Args:
        approve: A policy that is a component, or None.

    Raises:
        ValueError: It is no component.
    """
    if approve is None:
        return None
    if not isinstance(approve, ComponentBase):
        name = getattr(approve, "__qualname__", None) or type(approve).__name__
        refuse_functions(
            [name],
            f"approve_tool=`{name}` can't be written into a config: use a policy such as AllowTools, AskPerson or AskModel, "
            "or pass it where the config is loaded.",
        )
        return None
    return approve.dump_component()


def _checked(approve: ApproveTool | None) -> ApproveTool | None:
    if approve is not None and (not callable(approve) or inspect.isclass(approve)):
        raise TypeError(f"approve_tool must be a function or a policy such as AskPerson(), not {approve!r}")
    return approve
