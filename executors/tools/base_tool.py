"""AutoGen's `BaseTool`s as host tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from autogen_core.tools import FunctionTool, Tool, ToolResult
from pydantic import BaseModel, ConfigDict, create_model

from autogen_codeact.executors.tools.adapters import AUTOGEN, answer_of, with_token
from autogen_codeact.sandbox.tools.model_tool import ModelHostTool
from autogen_codeact.sandbox.tools.payloads import offload
from autogen_codeact.sandbox.types.tool import ToolAnswer


class _Finite(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


def from_tool(tool: Tool, *, name: str | None = None, description: str | None = None) -> ModelHostTool:
    """Make a host tool of an AutoGen tool.

    Args:
        tool: The tool.
        name: Its name. Default: its own.
        description: What it does. Default: its own.

    Raises:
        ValueError: Two of its parameters would have the same name in Python.
    """
    name = name if name is not None else tool.name
    gives_text = _gives_text(tool)

    async def call(arguments: Mapping[str, Any]) -> Any:
        value = await with_token(lambda token: tool.run_json(arguments, token))
        if gives_text:
            return ToolAnswer(tool.return_value_as_string(value))
        return await offload(True, lambda: answer_of(value, name)) if isinstance(value, ToolResult) else value

    return ModelHostTool(
        name,
        description if description is not None else tool.description,
        _finite(tool),
        call,
        f"a {type(tool).__name__}",
        returns=str if gives_text else tool.return_type(),
        library=AUTOGEN,
    )


def is_tool(thing: object) -> TypeGuard[Tool]:
    """Return whether it is an AutoGen tool, whatever its base class."""
    return isinstance(thing, Tool) and isinstance(thing.args_type(), type) and issubclass(thing.args_type(), BaseModel)


def _finite(tool: Tool) -> type[BaseModel]:
    """Return the model that validates the arguments; AutoGen's own model of a function accepts NaN and infinity."""
    model: type[BaseModel] = tool.args_type()
    allows_infinity = isinstance(tool, FunctionTool) and "allow_inf_nan" not in model.model_config
    return create_model(model.__name__, __base__=(model, _Finite)) if allows_infinity else model


def _gives_text(tool: Tool) -> bool:
    # The result of agents and teams is their text. The class is not imported, because that takes a second.
    kind = tool.return_type()
    return isinstance(kind, type) and kind.__name__ == "TaskResult" and kind.__module__.startswith("autogen_agentchat.")
