"""The host tools of a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.tools.broker import ToolBroker
from codeact_sandbox.tools.function import HostTool
from codeact_sandbox.tools.mcp_client import McpServer, McpServerSource
from codeact_sandbox.tools.names import distinct
from codeact_sandbox.tools.search import SEARCH, GroupedTool, SearchTool, are_many
from codeact_sandbox.tools.source import ToolSource
from codeact_sandbox.types.limits import ToolLimits
from codeact_sandbox.types.tool import HostToolProtocol, is_host_tool

# A typed function, sync or async, an object of the `HostToolProtocol` protocol, a source of such objects, or an MCP server.
Tool = Callable[..., Any] | HostToolProtocol | ToolSource | McpServer

MAX_TOOLS = 10_000


class Toolset:
    """The host tools of a sandbox; those of sources are known once they are started."""

    how_to_rename: ClassVar[str] = "Rename one."

    def __init__(
        self, tools: Sequence[Any] = (), limits: ToolLimits | None = None, approve: ApproveTool | None = None
    ) -> None:
        self._approve = self._approving = _checked(approve)
        self._ready: list[HostToolProtocol | ToolSource] = []
        self._in_use: tuple[HostToolProtocol, ...] = ()
        self._added: tuple[Any, ...] = ()
        # All tools; None before `start` if there are sources of tools to start.
        self.known: tuple[HostToolProtocol, ...] | None = ()
        # What runs the tools.
        self.broker = ToolBroker((), limits or ToolLimits(), approve)
        self._given = self._adopt(tools)

    def adapt(self, tool: Any) -> HostToolProtocol | ToolSource:
        if isinstance(tool, McpServer):
            return McpServerSource(tool)
        if isinstance(tool, ToolSource) or is_host_tool(tool):
            return tool
        if not callable(tool):
            raise TypeError(f"{tool!r} is not a tool: give a typed function")
        return HostTool(tool)

    def is_same(self, one: object, other: object) -> bool:
        return one is other or one == other

    def add(self, tools: Sequence[Any], approve: ApproveTool | None = None) -> None:
        """Add tools, from the next block on; those of sources are known after `start`.

        Tools that were added before are ignored, so that several users can share a sandbox.
        """
        if approve is not None and self._approving not in (None, approve):
            raise ValueError("approve_tool was given more than once: give it to the executor or to one of its agents")
        checked = _checked(approve)
        if isinstance(tools, Sequence) and not isinstance(tools, str):
            here = (*self._given, *self._added)
            tools = [each for each in tools if not any(self.is_same(each, tool) for tool in here)]
        self._added += self._adopt(tools)
        self._approving = self._approving or checked
        self.broker.approve = self._approving

    def offer(self, tool: HostToolProtocol) -> None:
        """Add an internal tool: no list shows it, and its calls need no approval."""
        if self.broker.tools.get(tool.name) != tool:
            self.broker.replace((), [tool])
            self.broker.without_approval.add(tool.name)

    def _adopt(self, tools: Sequence[Any]) -> tuple[Any, ...]:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
            raise TypeError(f"tools must be a list of tools, not a {type(tools).__name__}.")
        ready = [*self._ready, *map(self.adapt, tools)]
        self._check_names([each for each in ready if not isinstance(each, ToolSource)])
        if len(ready) > len(self._ready):
            self._ready = ready
            self._know()
            self._use(self.known or ())
        return tuple(tools)

    def _know(self) -> None:
        tools = [each for each in self._ready if not isinstance(each, ToolSource)]
        self.known = tuple(tools) if len(tools) == len(self._ready) else None

    def _use(self, tools: Sequence[HostToolProtocol]) -> None:
        search = [SearchTool(tuple(tools))] if are_many(tools) else []
        self.broker.replace(self._in_use, [*tools, *search])
        self._in_use = (*tools, *search)
        (self.broker.without_approval.add if search else self.broker.without_approval.discard)(SEARCH)

    def _check_names(self, tools: Sequence[HostToolProtocol]) -> None:
        if len(tools) > MAX_TOOLS:
            raise ValueError(f"A sandbox can have {MAX_TOOLS:,} tools, not {len(tools):,}: leave some out.")
        known = {"ToolError", "ToolRefused"}
        for tool in tools:
            if tool.name in known:
                origin = getattr(tool, "origin", f"a {type(getattr(tool, 'tool', tool)).__name__}")
                raise ValueError(
                    f"Two tools, or a tool and an exception, would be called `{tool.name}` in the sandbox; the second is "
                    f"{origin}. {self.how_to_rename}"
                )
            known.add(tool.name)

    async def start(self) -> tuple[HostToolProtocol, ...]:
        if self.known is not None:
            return self.known
        try:
            tools = grouped(await self._lists())
            self._check_names(tools)
            self._use(tools)
        except BaseException:
            with contextlib.suppress(Exception):
                await self.stop()
            raise
        self.known = tuple(tools)
        return self.known

    async def _lists(self) -> list[tuple[str, Sequence[HostToolProtocol]]]:
        async def of(each: HostToolProtocol | ToolSource, label: str) -> tuple[str, Sequence[Any]]:
            if not isinstance(each, ToolSource):
                return "", [each]
            tools: Sequence[Any] = await each.start()
            if label:
                for tool in tools:
                    tool.rule_name = f"{label}.{tool.name}"
            return each.group, tools

        lists: list[tuple[str, Sequence[HostToolProtocol]]] = []
        for each in await asyncio.gather(*map(of, self._ready, _labels(self._ready)), return_exceptions=True):
            if isinstance(each, BaseException):
                raise each
            lists.append(each)
        return lists

    async def stop(self) -> None:
        self._know()
        stops = [each.stop() for each in self._ready if isinstance(each, ToolSource)]
        for end in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(end, BaseException):
                raise end


def _labels(ready: Sequence[HostToolProtocol | ToolSource]) -> list[str]:
    """Return what rules call the sources: of two with the same name, the second has a number."""
    own = [each.label if isinstance(each, ToolSource) else "" for each in ready]
    numbered = iter(distinct(filter(None, own)))
    return [next(numbered) if label else "" for label in own]


def grouped(lists: Sequence[tuple[str, Sequence[HostToolProtocol]]]) -> list[HostToolProtocol]:
    """Join lists of tools.

    Those of a group with a name that another list has, too, become functions of a module; if the tools are many, those of each
    group, and the sandbox gets the stub of a tool when code first uses it.
    """
    joined = _joined(lists, many=False)
    return _joined(lists, many=True) if are_many(joined) else joined


def _joined(lists: Sequence[tuple[str, Sequence[HostToolProtocol]]], *, many: bool) -> list[HostToolProtocol]:
    counts = Counter(name for _, tools in lists for name in {tool.name for tool in tools})
    modules = set(counts)
    joined: list[HostToolProtocol] = []
    for group, tools in lists:
        if group and (many or any(counts[tool.name] > 1 for tool in tools)):
            while group in modules:
                group += "_"  # noqa: PLW2901 - the name of the module
            modules.add(group)
            tools = [GroupedTool(group, tool, when_used=many and hasattr(tool, "made_when_used")) for tool in tools]  # noqa: PLW2901 - as above
        joined += tools
    return joined


def _checked(approve: ApproveTool | None) -> ApproveTool | None:
    if approve is not None and (not callable(approve) or inspect.isclass(approve)):
        raise TypeError(f"approve_tool must be a function or a policy such as AskPerson(), not {approve!r}")
    return approve
