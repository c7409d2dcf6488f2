"""The host tools of an executor: functions, AutoGen's tools, workbenches and host tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autogen_core.tools import BaseTool, Workbench

from autogen_codeact.executors.tools.base_tool import AutoGenTool, is_tool
from autogen_codeact.executors.tools.configs import dump_approval, dump_tools, loaded_from
from codeact_sandbox.tools.mcp_client import McpServer
from codeact_sandbox.tools.source import ToolSource
from codeact_sandbox.tools.toolset import Toolset
from codeact_sandbox.types.limits import ToolLimits
from codeact_sandbox.types.tool import HostToolProtocol, is_host_tool

ToolLike = Callable[..., Any] | BaseTool[Any, Any] | Workbench | HostToolProtocol | ToolSource | McpServer
"""What can be passed as a tool: a typed function, an AutoGen tool, a workbench of such tools, a host tool, or an MCP server."""


class HostTools(Toolset):
    """A `Toolset` that also takes AutoGen's tools and workbenches."""

    how_to_rename = "Rename one (a workbench has tool_overrides, a FunctionTool takes name=)."

    def adapt(self, tool: Any) -> HostToolProtocol | ToolSource:
        """Make a host tool, or a source of host tools, of a `ToolLike`."""
        if isinstance(tool, Workbench):
            from autogen_codeact.executors.tools.workbench import source_of  # noqa: PLC0415 - loads `jsonschema`

            return source_of(tool)
        if not is_host_tool(tool) and is_tool(tool):
            return AutoGenTool(tool)
        if is_host_tool(tool) or isinstance(tool, ToolSource | McpServer) or callable(tool):
            return super().adapt(tool)
        raise TypeError(
            f"{tool!r} is not a tool: give a function, an AutoGen tool, a Workbench, or an object with name, signature, "
            "description, source and run."
        )

    def is_same(self, one: object, other: object) -> bool:
        """Return whether two things are the same tool, or were loaded from the same config, as by an agent and its executor."""
        config = loaded_from(one)
        return super().is_same(one, other) or (config is not None and config == loaded_from(other))

    def dump(self) -> dict[str, Any]:
        """Write the fields `tools`, `tool_limits` and `approve_tool` of an executor's config."""
        limits = self.broker.limits
        return {
            "tools": dump_tools(self._given),
            "approve_tool": dump_approval(self._approve),
            "tool_limits": None if limits == ToolLimits() else limits,
        }
