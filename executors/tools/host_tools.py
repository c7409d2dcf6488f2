"""From what users pass as `tools=[…]` to host tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from autogen_core import ComponentBase, ComponentModel
from autogen_core.tools import BaseTool, Tool, Workbench

from autogen_codeact.executors.tools.adapters import AUTOGEN, HostToolWithToken, as_host_tool
from autogen_codeact.executors.tools.described import BaseToolHostTool, is_tool
from autogen_codeact.executors.tools.omitted import refuse_functions
from autogen_codeact.executors.tools.workbench import OpenWorkbench
from autogen_codeact.sandbox.tools.function import FunctionHostTool
from autogen_codeact.sandbox.tools.threads import Threads
from autogen_codeact.sandbox.tools.tool import HostTool, is_host_tool

ToolLike = Callable[..., Any] | BaseTool[Any, Any] | Workbench | HostTool | HostToolWithToken
"""What can be passed as a tool: a typed function, an AutoGen tool, a workbench of such tools, or a host tool."""


_LOADED: WeakKeyDictionary[Any, ComponentModel] = WeakKeyDictionary()
"""The configs from which tools were loaded."""


class HostTools:
    """The tools of an executor; those of workbenches are known once they are started.

    Args:
        tools: Functions, AutoGen tools, workbenches and host tools.

    Raises:
        TypeError: Something is none of these.
        ValueError: A tool can't be used; the message says why.
    """

    def __init__(self, tools: Sequence[ToolLike] = ()) -> None:
        self._given: tuple[ToolLike, ...] = ()
        self._added: tuple[ToolLike, ...] = ()
        self._threads = Threads()
        self._ready: list[HostTool | Workbench] = []
        self._open: tuple[HostTool, ...] | None = None
        self._benches: list[OpenWorkbench] = []
        self._given = self._add(tools)

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def tools(self) -> tuple[HostTool, ...] | None:
        """The host tools, or None before `start` if there are workbenches."""
        if self._open is None and not any(isinstance(each, Workbench) for each in self._ready):
            return tuple(cast(list[HostTool], self._ready))
        return self._open

    def add(self, tools: Sequence[ToolLike]) -> None:
        """Add tools, which `dump` does not write; the tools of workbenches are known after `start`.

        Tools that were added before are ignored, so that agents can share an executor.

        Raises:
            TypeError: Something is no tool.
            ValueError: A tool can't be used.
        """
        if isinstance(tools, Sequence) and not isinstance(tools, str):
            here = (*self._given, *self._added)
            tools = [each for each in tools if not any(_is_same(each, tool) for tool in here)]
        self._added += self._add(tools)
        if tools:
            self._open = None

    def _add(self, tools: Sequence[ToolLike]) -> tuple[ToolLike, ...]:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
            raise TypeError(f"tools must be a list of tools, not a {type(tools).__name__}.")
        ready = [each if isinstance(each, Workbench) else self._adapt(each) for each in tools]
        _check_names([each for each in self._ready + ready if not isinstance(each, Workbench)])
        self._ready += ready
        return tuple(tools)

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
        if self._open is not None:
            return self._open
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
        self._open = tuple(tools)
        return self._open

    async def stop(self) -> None:
        """Stop the workbenches that were started here; may be repeated.

        Raises:
            Exception: What the first one raised that did not stop; the others are stopped all the same.
        """
        benches, self._benches, self._open = self._benches, [], None
        self._threads.close()
        ends = await asyncio.gather(*(bench.stop() for bench in benches), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def dump(self) -> list[ComponentModel]:
        """Write the tools for a config.

        Raises:
            ValueError: Some are no components; the message names all of them.
        """
        return dump_tools(self._given)


def dump_tools(tools: Sequence[ToolLike]) -> list[ComponentModel]:
    """Write tools for a config.

    Args:
        tools: What was passed as `tools=[…]`.

    Raises:
        ValueError: Some are no components; the message names all of them. Inside `omitting_functions` they are left out.
    """
    dumped: list[ComponentModel] = []
    refused: list[str] = []
    for each in tools:
        if not isinstance(each, ComponentBase):
            refused.append(_label(each))
            continue
        if each in _LOADED:
            dumped.append(_LOADED[each])  # a FunctionTool that was loaded has no source to write
            continue
        try:
            dumped.append(each.dump_component())
        except NotImplementedError:
            refused.append(_label(each))
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being written
            refused.append(f"{_label(each)} ({type(error).__name__}: {error})")
    refuse_functions(
        refused,
        f"These tools can't be written into a config: {', '.join(refused)}. A config holds AutoGen's tool and "
        "workbench components; wrap a function with FunctionTool(function, description=...), or pass the tools where "
        "the config is loaded.",
    )
    return dumped


def load_tools(models: Sequence[ComponentModel]) -> list[ToolLike]:
    """Load the tools of a config.

    Args:
        models: The result of `HostTools.dump`.

    Raises:
        TypeError: One is neither a tool nor a workbench.
    """
    tools: list[ToolLike] = []
    for model in models:
        if model.component_type not in ("tool", "workbench"):
            raise TypeError(
                f"tools names {model.provider}, a {model.component_type}; it must be a tool or a workbench."
            )
        kind: Any = Workbench if model.component_type == "workbench" else BaseTool
        tool = kind.load_component(model)
        _LOADED[tool] = model.model_copy(deep=True)
        tools.append(tool)
    return tools


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
    made_of = [_LOADED.get(each) if isinstance(each, ComponentBase) else None for each in (one, other)]
    return made_of[0] is not None and made_of[0] == made_of[1]


def _label(tool: ToolLike) -> str:
    name = getattr(tool, "name", None) or getattr(tool, "__qualname__", None) or type(tool).__name__
    return f"`{name}`"
