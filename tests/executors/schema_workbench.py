"""A workbench whose tools are known by their schemas alone."""

from collections.abc import Callable, Mapping
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema, Workbench


class SchemaWorkbench(Workbench):
    """A workbench with these tools; it keeps the events of its life."""

    component_provider_override = "tests.SchemaWorkbench"

    def __init__(self, schemas: list[Any], answer: Callable[[str, dict[str, Any]], str] = lambda *_: "found") -> None:
        self._schemas = schemas
        self._answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.events: list[str] = []
        self.result: ToolResult | None = None

    async def list_tools(self) -> list[ToolSchema]:
        """Return the schemas."""
        return self._schemas

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Keep the call and return the result."""
        given = dict(arguments or {})
        self.calls.append((name, given))
        self.events.append(f"{name} {given}")
        return self.result or ToolResult(name=name, result=[TextResultContent(content=self._answer(name, given))])

    async def start(self) -> None:
        """Keep the event."""
        self.events.append("start")

    async def stop(self) -> None:
        """Keep the event."""
        self.events.append("stop")

    async def reset(self) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None: ...
