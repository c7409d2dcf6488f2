"""A tool of another library whose arguments are described by a pydantic model, as a host tool."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel

from autogen_codeact.sandbox.tools.answers import to_answer
from autogen_codeact.sandbox.tools.arguments import MAX_PROBLEMS, result_of, validated
from autogen_codeact.sandbox.tools.function import NO_LIBRARY, LibraryTypes, contained, merged_definitions
from autogen_codeact.sandbox.tools.names import identifier
from autogen_codeact.sandbox.tools.payloads import is_small, offload
from autogen_codeact.sandbox.tools.stub import StubbedTool, parameters_of, write_stub
from autogen_codeact.sandbox.tools.type_text import TypeTexts
from autogen_codeact.sandbox.types.tool import ToolAnswer, ToolArgumentError


class ModelHostTool(StubbedTool):
    """A tool whose arguments are described by a pydantic model.

    Args:
        name: Its name for its owner; in the sandbox it becomes a Python name.
        description: What it does.
        model: The model of its arguments.
        call: Runs it with its arguments as JSON values; returns its result or a `ToolAnswer`.
        origin: Where it comes from, for errors.
        returns: The type of its result. Default: not known.
        library: Classes of its library that its result may contain. Default: none.

    Raises:
        ValueError: Two of its parameters would have the same name in Python.
    """

    def __init__(
        self,
        name: str,
        description: str,
        model: type[BaseModel],
        call: Callable[[Mapping[str, Any]], Awaitable[Any]],
        origin: str,
        *,
        returns: Any = None,
        library: LibraryTypes = NO_LIBRARY,
    ) -> None:
        self._model = model
        self._call = call
        self._convert = library.convert
        self.origin = f"`{name}`, {origin}"
        is_typed = not (returns is None or returns is Any or returns is inspect.Signature.empty)
        self._result = result_of(returns) if is_typed else None
        schema = model.model_json_schema()
        self._known = frozenset(schema.get("properties", {}))
        self._open = bool(schema.get("additionalProperties"))
        result = self._result.schema if self._result is not None else {}
        texts = TypeTexts(merged_definitions(schema, result))
        python_name = identifier(name)
        parameters = parameters_of(schema, texts, python_name)
        returned = texts.of(result, f"{name}_result") if self._result is not None else None
        self.stub = write_stub(python_name, parameters, returned, description, texts.classes)

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
        value = await contained(self._call(arguments))
        if isinstance(value, ToolAnswer):
            return value
        dump = self._result.dump if self._result is not None else None
        return await offload(not is_small(value), lambda: to_answer(value, self.name, dump, self._convert))

    def _validate(self, arguments: Mapping[str, Any]) -> None:
        validated(lambda given: self._model.model_validate_json(json.dumps(given)), arguments)
