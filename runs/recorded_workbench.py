"""A workbench of an `AssistantAgent` that writes its calls to a run's log, or in a resumed run returns results from the log."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from autogen_core import CancellationToken, ComponentModel
from autogen_core.tools import (
    StaticStreamWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)

from autogen_codeact.runs.agent_history import ToolAnswer
from autogen_codeact.runs.events import HostCallFinished, HostCallStarted
from autogen_codeact.runs.results import CallRecord, error_info
from autogen_codeact.runs.steps import AgentSteps
from autogen_codeact.teams.parts import agents_of

UNKNOWN = (
    "It is not known whether this call was made: the process ended while it was under way, and it was not repeated. "
    "Find out what it has done before you call it again."
)


class RecordedWorkbench(StaticStreamWorkbench):
    """Forwards to another workbench. It is of this class because `AssistantAgent` streams only from it."""

    def __init__(self, workbench: Workbench, steps: AgentSteps) -> None:
        self._workbench = workbench
        self._steps = steps
        tools = getattr(workbench, "_tools", ())
        self._with_agents = frozenset(tool.name for tool in tools if agents_of(tool))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Return the result of a call, after it is in the log."""
        result = None
        async for item in self.call_tool_stream(name, arguments, cancellation_token, call_id):
            result = item
        assert isinstance(result, ToolResult)
        return result

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Yield what a call yields, last its result, after that is in the log."""
        # What runs other agents is made again when a run is continued: the agents answer from the log themselves.
        if name in self._with_agents:
            async for item in self._forward(name, arguments, cancellation_token, call_id):
                yield item
            return
        values = dict(arguments or {})
        if (recorded := self._steps.tool_answer(name, values)) is not None:
            yield _result_of(recorded)
            return
        number, began = await self._steps.new_tool_call(), time.monotonic()
        agent, log = self._steps.agent, self._steps.log
        await log.write(HostCallStarted(agent=agent, block=0, call=number, name=name, arguments=values), sync=True)
        record = CallRecord(name=name, arguments=values, outcome="cancelled")
        try:
            async for item in self._forward(name, arguments, cancellation_token, call_id):
                if isinstance(item, ToolResult):
                    record.outcome, record.result = "error" if item.is_error else "ok", item.model_dump(mode="json")
                else:
                    yield item
        except Exception as error:
            record.outcome, record.error = "error", error_info(error)
            raise
        finally:
            record.duration_s = time.monotonic() - began
            await log.write(HostCallFinished(agent=agent, block=0, call=number, record=record), sync=True)
        yield ToolResult.model_validate(record.result)

    async def _forward(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        cancellation_token: CancellationToken | None,
        call_id: str | None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        if not isinstance(self._workbench, StaticStreamWorkbench):
            yield await self._workbench.call_tool(name, arguments, cancellation_token, call_id)
            return
        async for item in self._workbench.call_tool_stream(name, arguments, cancellation_token, call_id):
            yield item

    # What is the other workbench's own

    async def list_tools(self) -> list[ToolSchema]:
        """List its tools."""
        return await self._workbench.list_tools()

    async def start(self) -> None:
        """Start it."""
        await self._workbench.start()

    async def stop(self) -> None:
        """Stop it."""
        await self._workbench.stop()

    async def reset(self) -> None:
        """Reset it."""
        await self._workbench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return its state."""
        return await self._workbench.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load its state."""
        await self._workbench.load_state(state)

    def dump_component(self) -> ComponentModel:
        """Return its configuration."""
        return self._workbench.dump_component()


def _result_of(recorded: ToolAnswer) -> ToolResult:
    """Return the result that a call had, or that it is not known."""
    record = recorded.record
    if record is not None and record.result is not None:
        return ToolResult.model_validate(record.result)
    text = UNKNOWN
    if record is not None and record.error is not None:
        text = f"{record.error.type}: {record.error.message}"
    return ToolResult(name=recorded.name, result=[TextResultContent(content=text)], is_error=True)
