"""A tool that is known by its JSON schema, such as that of an MCP server, as a host tool."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from codeact_sandbox.tools.function import contained
from codeact_sandbox.tools.json_schema import ArgumentSchema, plain_schema
from codeact_sandbox.tools.names import identifier
from codeact_sandbox.tools.payloads import is_small
from codeact_sandbox.tools.stub import Stub, parameters_of, write_stub
from codeact_sandbox.tools.type_text import TypeTexts, merged_definitions
from codeact_sandbox.types.tool import ToolAnswer, ToolArgumentError

_PLAIN_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*[A-Za-z0-9]|[A-Za-z]")
"""Names of parameters that no other one can be in Python; only keywords get a `_` at the end."""


class SchemaHostTool:
    """A tool that is known by its JSON schema. Its stub is made when it is needed."""

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
        self._parameters = plain_schema(parameters, self.origin)
        self._result = plain_schema(result, self.origin) if result is not None else None
        self._schema = ArgumentSchema(self._parameters, self.origin)
        is_large = not is_small([self._parameters, self._result])
        if is_large or not all(map(_PLAIN_NAME.fullmatch, self._parameters.get("properties", {}))):
            self._stub  # noqa: B018 - it takes long, or raises what is wrong with it

    @cached_property
    def _stub(self) -> Stub:
        texts = TypeTexts(merged_definitions(self._parameters, self._result or {}))
        listed = parameters_of(self._parameters, texts, self.name)
        returned = texts.of(self._result, f"{self.name}_result") if self._result is not None else "str"
        return write_stub(self.name, listed, returned, self._description, texts.classes)

    @property
    def signature(self) -> str:
        """Its parameters and result."""
        return self._stub.signature

    @property
    def description(self) -> str:
        return self._stub.description

    @property
    def source(self) -> Mapping[str, Any]:
        """Its stub, as data."""
        return self._stub.source

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        if problems := await self._schema.problems(arguments):
            raise ToolArgumentError("; ".join(problems))
        answer: ToolAnswer = await contained(self._call(arguments))
        return answer
