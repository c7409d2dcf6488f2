"""AutoGen's own tools as host tools: a `BaseTool`, and a tool of a `Workbench`."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, Tool, ToolResult, ToolSchema
from pydantic import BaseModel, ConfigDict, TypeAdapter

from autogen_codeact.sandbox.tools.answers import to_answer
from autogen_codeact.sandbox.tools.classes import shown_value
from autogen_codeact.sandbox.tools.function import merged, survived
from autogen_codeact.sandbox.tools.json_schema import ArgumentSchema, plain_schema
from autogen_codeact.sandbox.tools.payloads import aside, is_small
from autogen_codeact.sandbox.tools.schema import MAX_COMPLAINTS, Fields, PythonSchema, checked, model_schema
from autogen_codeact.sandbox.tools.shapes import (
    Names,
    Shape,
    Shapes,
    definitions_of,
    identifier,
    parameter_name,
    required_by,
)
from autogen_codeact.sandbox.tools.stub import Parameter, StubbedTool, write_stub
from autogen_codeact.sandbox.tools.tool import ToolAnswer, ToolArgumentError

_RESULT = "result"


class BaseToolHostTool(StubbedTool):
    """An AutoGen `BaseTool` as a host tool.

    Args:
        tool: The tool.
        names: The names that all tools share.

    Raises:
        ValueError: Its name can't be used.
    """

    def __init__(self, tool: Tool, names: Names, *, name: str | None = None, description: str | None = None) -> None:
        self._tool = tool
        self._arguments = _finite(tool)
        self._gives_text = _gives_text(tool)
        self._result = None if self._gives_text else _result_fields(tool.return_type())
        name = name if name is not None else tool.name
        called = identifier(name)
        names.tool(called, f"`{name}`, a {type(tool).__name__}")
        schema = model_schema(tool.args_type())
        definitions = [schema.get("$defs", {})]
        result_schema: Mapping[str, Any] = {}
        if self._result is not None:
            given, taken = self._result.schema("serialization"), self._result.schema("validation")
            definitions += [taken.get("$defs", {}), given.get("$defs", {})]
            result_schema = given["properties"][_RESULT]
        shapes = Shapes(called, names, merged(definitions), python=True)
        self._known = frozenset(schema.get("properties", {}))
        self._open = bool(schema.get("additionalProperties"))
        parameters = parameters_of(schema, shapes, called)
        self.stub = write_stub(
            called,
            parameters,
            self._result_shape(shapes, result_schema),
            description if description is not None else tool.description,
            shapes.classes.values(),
        )

    @property
    def tool(self) -> Tool:
        """The tool."""
        return self._tool

    def _result_shape(self, shapes: Shapes, schema: Mapping[str, Any]) -> Shape | None:
        if self._gives_text:
            return Shape("str")
        return shapes.of(schema, f"{self._tool.name}_result") if self._result is not None else None

    async def run(self, arguments: Mapping[str, Any], cancellation_token: CancellationToken) -> ToolAnswer:
        """Check the arguments and run the tool.

        Raises:
            ToolArgumentError: They do not fit.
            Exception: What the tool raised.
        """
        unknown = [] if self._open else [f"{name} is not known" for name in arguments if name not in self._known]
        if unknown:
            raise ToolArgumentError("; ".join(unknown[:MAX_COMPLAINTS]))
        await aside(not is_small(arguments), lambda: self._check(arguments))
        value = await survived(self._tool.run_json(arguments, cancellation_token), cancellation_token)
        if self._gives_text:
            return ToolAnswer(self._tool.return_value_as_string(value))
        fields = self._result
        dump = None if fields is None else (lambda it: fields.dump({_RESULT: it})[_RESULT])
        return await aside(not is_small(value), lambda: to_answer(value, self.name, dump))

    def _check(self, arguments: Mapping[str, Any]) -> None:
        checked(lambda given: self._arguments.model_validate_json(json.dumps(given)), arguments)


class SchemaHostTool(StubbedTool):
    """A tool that is known by its JSON schema, such as that of a `Workbench`, as a host tool.

    Args:
        schema: The schema.
        names: The names that all tools share.
        call: Runs it with its arguments.
        origin: Where it comes from, for errors.
        result: Schema of what it returns; by default text.

    Raises:
        ValueError: Its name is in use, or its schema is invalid.
    """

    def __init__(
        self,
        schema: ToolSchema,
        names: Names,
        call: Callable[[Mapping[str, Any], CancellationToken], Awaitable[ToolResult | ToolAnswer]],
        origin: str,
        *,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        self._call = call
        name = identifier(schema["name"])
        origin = f"`{schema['name']}` of {origin}"
        names.tool(name, origin)
        parameters = plain_schema(schema.get("parameters") or {}, origin)
        self._schema = ArgumentSchema(parameters, origin)
        taken = Shapes(name, names, definitions_of(parameters), python=False)
        returns, classes = Shape("str"), taken.classes
        if result is not None:
            result = plain_schema(result, origin)
            given = Shapes(name, names, definitions_of(result), python=False)
            returns, classes = given.of(result, f"{name}_result"), given.classes
        words = str(schema.get("description") or "")
        listed = parameters_of(parameters, taken, name)
        self.stub = write_stub(name, listed, returns, words, {**taken.classes, **classes}.values())

    async def run(self, arguments: Mapping[str, Any], cancellation_token: CancellationToken) -> ToolAnswer:
        """Check the arguments and run the tool.

        Raises:
            ToolArgumentError: They do not fit.
            RuntimeError: The tool reported an error.
        """
        if problems := await self._schema.problems(arguments):
            raise ToolArgumentError("; ".join(problems[:MAX_COMPLAINTS]))
        answer = await survived(self._call(arguments, cancellation_token), cancellation_token)
        if isinstance(answer, ToolAnswer):
            return answer
        if answer.is_error:
            raise RuntimeError(answer.to_text("[image]").strip() or "the tool reported an error and said nothing of it")
        return await aside(not is_small(answer), lambda: to_answer(answer, self.name))


def parameters_of(schema: Mapping[str, Any], shapes: Shapes, tool: str) -> list[Parameter]:
    """Read parameters out of an object's schema.

    Args:
        schema: The schema.
        shapes: Knows the types.
        tool: The tool's name, for errors.

    Raises:
        ValueError: Two would have one name in Python.
    """
    needed = required_by(schema)
    parameters = [
        _parameter(key, each if isinstance(each, Mapping) else {}, shapes, needed=key in needed)
        for key, each in schema.get("properties", {}).items()
    ]
    for name, number in Counter(each.name for each in parameters).items():
        if number > 1:
            raise ValueError(
                f"Two parameters of the tool `{tool}` would both be `{name}` in Python; rename one of them."
            )
    return parameters


def _parameter(key: str, schema: Mapping[str, Any], shapes: Shapes, *, needed: bool) -> Parameter:
    shape = shapes.of(schema, key)
    default = schema.get("default")
    return Parameter(
        name=parameter_name(key),
        key=key,
        shape=shape,
        default=None if needed else shown_value(default),
        values=(default,),
        omitted=not needed and default is None and ("default" not in schema or not shape.nullable),
        description=str(schema.get("description", "")) if "$ref" not in schema else "",
    )


def _result_fields(kind: Any) -> Fields | None:
    if kind is inspect.Signature.empty or kind is Any or kind is None:
        return None
    try:
        TypeAdapter(kind).json_schema(schema_generator=PythonSchema, mode="serialization")
        return Fields({_RESULT: kind})
    except Exception:  # noqa: BLE001 - a type of the author's own: the value is written as what it is
        return None


def _finite(tool: Tool) -> type[BaseModel]:
    """The model that checks the arguments; AutoGen's own model of a function accepts NaN and infinity."""
    model: type[BaseModel] = tool.args_type()
    if not isinstance(tool, FunctionTool) or "allow_inf_nan" in model.model_config:
        return model
    return _of(model)


def _of(model: type[BaseModel]) -> type[BaseModel]:
    class Finite(model):  # type: ignore[valid-type,misc]
        model_config = ConfigDict(allow_inf_nan=False)

    return Finite


def _gives_text(tool: Tool) -> bool:
    # What agents and teams did is for AutoGen to read; code gets their words. Importing them takes a second.
    kind = tool.return_type()
    return isinstance(kind, type) and kind.__name__ == "TaskResult" and kind.__module__.startswith("autogen_agentchat.")


def is_tool(thing: object) -> bool:
    """Whether it is an AutoGen tool, whatever its base class."""
    return isinstance(thing, Tool) and isinstance(thing.args_type(), type) and issubclass(thing.args_type(), BaseModel)
