"""AutoGen's `BaseTool`s as host tools."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from autogen_core.tools import FunctionTool, Tool, ToolResult
from pydantic import BaseModel, ConfigDict

from autogen_codeact.executors.tools.adapters import answer_of, from_autogen, with_token
from autogen_codeact.sandbox.tools.answers import to_answer
from autogen_codeact.sandbox.tools.arguments import MAX_PROBLEMS, result_of, validated
from autogen_codeact.sandbox.tools.function import contained, merged_definitions
from autogen_codeact.sandbox.tools.names import identifier
from autogen_codeact.sandbox.tools.payloads import is_small, offload
from autogen_codeact.sandbox.tools.stub import StubbedTool, parameters_of, write_stub
from autogen_codeact.sandbox.tools.tool import ToolAnswer, ToolArgumentError
from autogen_codeact.sandbox.tools.type_text import TypeTexts


class BaseToolHostTool(StubbedTool):
    """An AutoGen `BaseTool` as a host tool.

    Args:
        tool: The tool.
        name: Its name. Default: its own.
        description: What it does. Default: its own.

    Raises:
        ValueError: Two of its parameters would have the same name in Python.
    """

    def __init__(self, tool: Tool, *, name: str | None = None, description: str | None = None) -> None:
        self._tool = tool
        self._model = _finite(tool)
        self._gives_text = _gives_text(tool)
        kind = tool.return_type()
        has_type = not (self._gives_text or kind is inspect.Signature.empty or kind is Any or kind is None)
        self._result = result_of(kind) if has_type else None
        name = name if name is not None else tool.name
        self.origin = f"`{name}`, a {type(tool).__name__}"
        schema = tool.args_type().model_json_schema()
        self._known = frozenset(schema.get("properties", {}))
        self._open = bool(schema.get("additionalProperties"))
        result = self._result.schema if self._result is not None else {}
        texts = TypeTexts(merged_definitions(schema, result))
        python_name = identifier(name)
        parameters = parameters_of(schema, texts, python_name)
        returned = texts.of(result, f"{tool.name}_result") if self._result is not None else None
        self.stub = write_stub(
            python_name,
            parameters,
            "str" if self._gives_text else returned,
            description if description is not None else tool.description,
            texts.classes,
        )

    @property
    def tool(self) -> Tool:
        """The tool."""
        return self._tool

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Validate the arguments and run the tool.

        Raises:
            ToolArgumentError: They do not fit.
            Exception: What the tool raised.
        """
        unknown = [] if self._open else [f"{name} is not known" for name in arguments if name not in self._known]
        if unknown:
            raise ToolArgumentError("; ".join(unknown[:MAX_PROBLEMS]))
        await offload(not is_small(arguments), lambda: self._validate(arguments))
        value = await contained(with_token(lambda token: self._tool.run_json(arguments, token)))
        if self._gives_text:
            return ToolAnswer(self._tool.return_value_as_string(value))
        if isinstance(value, ToolResult):
            return await offload(True, lambda: answer_of(value, self.name))
        dump = self._result.dump if self._result is not None else None
        return await offload(not is_small(value), lambda: to_answer(value, self.name, dump, from_autogen))

    def _validate(self, arguments: Mapping[str, Any]) -> None:
        validated(lambda given: self._model.model_validate_json(json.dumps(given)), arguments)


def _finite(tool: Tool) -> type[BaseModel]:
    """Return the model that validates the arguments; AutoGen's own model of a function accepts NaN and infinity."""
    model: type[BaseModel] = tool.args_type()
    if not isinstance(tool, FunctionTool) or "allow_inf_nan" in model.model_config:
        return model
    return _of(model)


def _of(model: type[BaseModel]) -> type[BaseModel]:
    class Finite(model):  # type: ignore[valid-type,misc]
        model_config = ConfigDict(allow_inf_nan=False)

    return Finite


def _gives_text(tool: Tool) -> bool:
    # The result of agents and teams is their text. The class is not imported, because that takes a second.
    kind = tool.return_type()
    return isinstance(kind, type) and kind.__name__ == "TaskResult" and kind.__module__.startswith("autogen_agentchat.")


def is_tool(thing: object) -> bool:
    """Return whether it is an AutoGen tool, whatever its base class."""
    return isinstance(thing, Tool) and isinstance(thing.args_type(), type) and issubclass(thing.args_type(), BaseModel)
