"""A tool that is known by its JSON schema, such as that of an MCP server, as a host tool."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from codeact_sandbox.tools.function import contained
from codeact_sandbox.tools.json_schema import ArgumentSchema, plain_schema, simple_text
from codeact_sandbox.tools.names import identifier
from codeact_sandbox.tools.stub import Stub, parameters_of, write_stub
from codeact_sandbox.tools.type_text import TypeTexts, definitions_of
from codeact_sandbox.types.tool import ToolAnswer, ToolArgumentError

MAX_PROBLEMS = 5

_PLAIN_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*[A-Za-z0-9]|[A-Za-z]")
"""Names of parameters that no other one can be in Python; only keywords get a `_` at the end."""


class SchemaHostTool:
    """A tool that is known by its JSON schema. Its stub is made when it is needed, unless the schema may be wrong."""

    made_when_used = True

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        call: Callable[[Mapping[str, Any]], Awaitable[ToolAnswer]],
        origin: str,
        *,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        self._call = call
        self.origin = f"`{name}` of {origin}"
        self.name = identifier(name)
        self._description = description
        texts = [simple_text(each) if each is not None else "null" for each in (parameters, result)]
        self._given: list[Any] = [
            text or plain_schema(given or {}, self.origin)
            for text, given in zip(texts, (parameters, result), strict=True)
        ]
        self._schema = ArgumentSchema(parameters if texts[0] else self._given[0], self.origin, texts[0])
        if not all(texts) or not all(map(_PLAIN_NAME.fullmatch, parameters.get("properties", {}))):
            self._stub  # noqa: B018 - raises what is wrong with it

    @cached_property
    def _stub(self) -> Stub:
        parameters, result = (json.loads(each) if isinstance(each, str) else each for each in self._given)
        texts = TypeTexts(definitions_of(parameters))
        returned, classes = "str", []
        if result is not None:
            result_texts = TypeTexts(definitions_of(result))
            returned = result_texts.of(result, f"{self.name}_result")
            classes = result_texts.classes
        listed = parameters_of(parameters, texts, self.name)
        return write_stub(self.name, listed, returned, self._description, [*texts.classes, *classes])

    @property
    def signature(self) -> str:
        """Its parameters and result."""
        return self._stub.signature

    @property
    def description(self) -> str:
        """Its docstring."""
        return self._stub.description

    @property
    def source(self) -> Mapping[str, Any]:
        """Its stub, as data."""
        return self._stub.source

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Check the arguments and run the tool."""
        if problems := await self._schema.problems(arguments):
            raise ToolArgumentError("; ".join(problems[:MAX_PROBLEMS]))
        answer: ToolAnswer = await contained(self._call(arguments))
        return answer
