"""Spans of teams, and of agents where AutoGen makes none."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from opentelemetry import trace

from autogen_codeact.telemetry.spans import AGENT_DESCRIPTION, AGENT_NAME, OPERATION, Patch, Spans, detached, undo_all

Method = Callable[..., Any]


def instrument_team(team: Team, spans: Spans) -> Callable[[], None]:
    """Make a span of each run of a team, also of one that goes on; `run` uses `run_stream`, in AutoGen's teams as in ours."""
    attributes = {OPERATION: "invoke_workflow", AGENT_NAME: team.name}

    def run_stream(original: Method) -> Method:
        async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            span = spans.start(f"invoke_workflow {team.name}", attributes)
            async with aclosing(spans.stream(span, original(*args, **kwargs))) as items:
                async for item in items:
                    yield item

        return traced

    names = [name for name in ("run_stream", "continue_stream") if hasattr(team, name)]
    return undo_all(*(Patch(team, name, run_stream) for name in names))


def instrument_agent(agent: ChatAgent, spans: Spans) -> Callable[[], None]:
    """Make a span of each turn of an agent that is not inside AutoGen's own span of it.

    AutoGen makes its span with the global provider: there is none if that is not set, or if an agent is called directly.
    """
    name = f"invoke_agent {agent.name}"
    attributes = {OPERATION: "invoke_agent", AGENT_NAME: agent.name, AGENT_DESCRIPTION: agent.description}

    def inside() -> bool:
        # The API has no name of a span; those of the SDK have one.
        return getattr(trace.get_current_span(), "name", None) == name

    def on_messages(original: Method) -> Method:
        async def traced(*args: Any, **kwargs: Any) -> Any:
            with nullcontext() if inside() else spans.current(name, attributes):
                return await original(*args, **kwargs)

        return traced

    def on_messages_stream(original: Method) -> Method:
        def traced(*args: Any, **kwargs: Any) -> Any:
            items = original(*args, **kwargs)
            return items if inside() else spans.stream(spans.start(name, attributes), items)

        return traced

    def run_stream(original: Method) -> Method:
        # AutoGen makes its span the current one here and yields: without this, its reader would be inside it.
        return lambda *args, **kwargs: detached(original(*args, **kwargs))

    made = {"on_messages": on_messages, "on_messages_stream": on_messages_stream, "run_stream": run_stream}
    return undo_all(*(Patch(agent, method, make) for method, make in made.items()))
