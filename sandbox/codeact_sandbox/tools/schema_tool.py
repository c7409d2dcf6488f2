"""A tool that is known by its JSON schema, such as that of an MCP server, as a host tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import Any

from codeact_sandbox.tools.function import contained
from codeact_sandbox.tools.json_schema import ArgumentSchema, plain_schema
from codeact_sandbox.tools.names import identifier
from codeact_sandbox.tools.stub import StubbedTool, parameters_of, write_stub
from codeact_sandbox.tools.type_text import TypeTexts, definitions_of
from codeact_sandbox.types.tool import ToolAnswer, ToolArgumentError

MAX_PROBLEMS = 5


class SchemaHostTool(StubbedTool):
    """A tool that is known by its JSON schema."""

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
        origin = f"`{name}` of {origin}"
        python_name = identifier(name)
        parameters = plain_schema(parameters, origin)
        self._make_schema = partial(ArgumentSchema, parameters, origin)
        texts = TypeTexts(definitions_of(parameters))
        returned, classes = "str", []
        if result is not None:
            result = plain_schema(result, origin)
            result_texts = TypeTexts(definitions_of(result))
            returned = result_texts.of(result, f"{python_name}_result")
            classes = result_texts.classes
        listed = parameters_of(parameters, texts, python_name)
        stub = write_stub(python_name, listed, returned, description, [*texts.classes, *classes])
        super().__init__(stub, origin)

    @cached_property
    def _schema(self) -> ArgumentSchema:
        """The schema of the arguments; making it takes a millisecond, so that of a tool that is never called is not made."""
        return self._make_schema()

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Check the arguments and run the tool."""
        if problems := await self._schema.problems(arguments):
            raise ToolArgumentError("; ".join(problems[:MAX_PROBLEMS]))
        answer: ToolAnswer = await contained(self._call(arguments))
        return answer
