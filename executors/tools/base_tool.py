"""AutoGen's `BaseTool`s as host tools."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from autogen_core.tools import FunctionTool, Tool, ToolResult
from pydantic import BaseModel, ConfigDict

from autogen_codeact.executors.tools.adapters import answer_of, with_token
from codeact_sandbox.tools.answers import to_answer
from codeact_sandbox.tools.arguments import refuse_paths, result_of, validated
from codeact_sandbox.tools.function import contained
from codeact_sandbox.tools.names import identifier
from codeact_sandbox.tools.payloads import is_small, offload
from codeact_sandbox.tools.stub import StubbedTool, parameters_of, write_stub
from codeact_sandbox.tools.type_text import TypeTexts, merged_definitions
from codeact_sandbox.types.tool import ToolAnswer


class AutoGenTool(StubbedTool):
    def __init__(self, tool: Tool, *, name: str | None = None, description: str | None = None) -> None:
        self._tool = tool
        name = name if name is not None else tool.name
        self._model = _strict(tool)
        self._gives_text = _gives_text(tool)
        returns: Any = str if self._gives_text else tool.return_type()
        is_typed = returns not in (None, Any, inspect.Signature.empty)
        self._result = result_of(returns) if is_typed else None
        schema = self._model.model_json_schema()
        refuse_paths(name, schema)
        result = self._result.schema if self._result is not None else {}
        texts = TypeTexts(merged_definitions(schema, result))
        python_name = identifier(name)
        parameters = parameters_of(schema, texts, python_name)
        returned = texts.of(result, f"{name}_result") if self._result is not None else None
        about = description if description is not None else tool.description
        stub = write_stub(python_name, parameters, returned, about, texts.classes)
        super().__init__(stub, f"`{name}`, a {type(tool).__name__}")

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        await offload(not is_small(arguments), lambda: self._validate(arguments))
        value = await contained(with_token(lambda token: self._tool.run_json(arguments, token)))
        if self._gives_text:
            return ToolAnswer(self._tool.return_value_as_string(value))
        if isinstance(value, ToolResult):
            return await offload(True, lambda: answer_of(value, self.name))
        dump = self._result.dump if self._result is not None else None
        return await offload(not is_small(value), lambda: to_answer(value, self.name, dump))

    def _validate(self, arguments: Mapping[str, Any]) -> None:
        validated(lambda given: self._model.model_validate_json(json.dumps(given)), arguments)


def is_tool(thing: object) -> TypeGuard[Tool]:
    """Return whether it is an AutoGen tool, whatever its base class."""
    return isinstance(thing, Tool) and isinstance(thing.args_type(), type) and issubclass(thing.args_type(), BaseModel)


def _strict(tool: Tool) -> type[BaseModel]:
    """Return the model that validates the arguments, which refuses unknown ones unless it says otherwise.

    AutoGen's own model of a function accepts NaN and infinity.
    """
    own: Any = tool.args_type()
    rules = ConfigDict(extra="forbid", allow_inf_nan=not isinstance(tool, FunctionTool))

    class Strict(own):  # type: ignore[misc]
        model_config = rules | own.model_config

    return Strict


def _gives_text(tool: Tool) -> bool:
    # The result of agents and teams is their text. The class is not imported, because that takes a second.
    kind = tool.return_type()
    return isinstance(kind, type) and kind.__name__ == "TaskResult" and kind.__module__.startswith("autogen_agentchat.")
