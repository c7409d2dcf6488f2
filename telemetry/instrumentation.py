"""`instrument`: spans for agents and teams, with everything inside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.models import ChatCompletionClient
from opentelemetry.trace import TracerProvider

from autogen_codeact.teams.parts import agents_of, executors_of, models_of, teams_of
from autogen_codeact.telemetry.agents import instrument_agent, instrument_team
from autogen_codeact.telemetry.content import Redact
from autogen_codeact.telemetry.models import instrument_model
from autogen_codeact.telemetry.sandboxes import SpanObserver
from autogen_codeact.telemetry.spans import Spans, share
from codeact_sandbox import AsyncSandbox, Sandbox
from codeact_sandbox.protocols import ObservedExecutor

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which OpenTelemetry's own instrumentations are told whether spans contain messages."""

Part = ChatAgent | Team | ObservedExecutor | Sandbox | AsyncSandbox | ChatCompletionClient


class Instrumentation:
    """What `instrument` returns: ends the spans with `uninstrument()`, or at the end of a `with` block."""

    def __init__(self, ends: ExitStack) -> None:
        self._ends = ends

    def uninstrument(self) -> None:
        """Make no spans any more; repeated calls are harmless. The spans of blocks that run now end here."""
        self._ends.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstrument()


def instrument(
    *parts: Part,
    tracer_provider: TracerProvider | None = None,
    content: bool | None = None,
    redact: Redact | None = None,
) -> Instrumentation:
    """Make OpenTelemetry spans of what agents and teams do from now on, with all that is inside: docs/telemetry.md.

    What two parts share, such as an executor, is reported once. Without an SDK it does nothing.

    Args:
        parts: Agents, teams, executors, sandboxes and model clients, at least one.
        tracer_provider: Where the spans go. Default: the global provider, also one that is set later.
        content: Whether spans contain messages, code, output, and arguments and results of tools. Default: what the variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        redact: Called with each text of the content; returns what may be shown.

    Returns:
        Ends it: use it with `with`, or call `uninstrument()`. It need not be kept.

    Raises:
        TypeError: Something can't be instrumented.
    """
    if not parts:
        raise TypeError("instrument() needs at least one agent or team.")
    for part in parts:
        if isinstance(part, type) or not isinstance(part, Part):
            raise TypeError(
                f"{part!r} can't be instrumented: give agents, teams, executors, sandboxes or model clients."
            )
    if content is None:
        # Newer instrumentations take the name of a place instead of "true"; ours has only one place, the span.
        content = os.environ.get(CAPTURE_CONTENT, "").strip().lower() in ("true", "1", "span_only", "span_and_event")
    spans = Spans(tracer_provider, content=content, redact=redact)
    with ExitStack() as ends:
        for each, begin in _all(parts, spans):
            ends.callback(share(each, tracer_provider, begin))
        return Instrumentation(ends.pop_all())


def _all(parts: Sequence[Part], spans: Spans) -> Iterator[tuple[Any, Callable[[], Callable[[], None]]]]:
    """Return each object once that gets instrumented, and what does that."""
    seen: dict[int, object] = {}

    def new(found: Sequence[object]) -> Iterator[Any]:
        for each in found:
            if id(each) not in seen:
                seen[id(each)] = each
                yield each

    for part in parts:
        for team in new(teams_of(part)):
            yield team, partial(instrument_team, team, spans)
        for agent in new(agents_of(part)):
            yield agent, partial(instrument_agent, agent, spans)
        for client in new(models_of(part)):
            yield client, partial(instrument_model, client, spans)
        for executor in new([each for each in executors_of(part) or [part] if isinstance(each, ObservedExecutor)]):
            yield executor, partial(_instrument_executor, executor, spans)


def _instrument_executor(executor: ObservedExecutor, spans: Spans) -> Callable[[], None]:
    observer = SpanObserver(spans)
    detach = executor.attach(observers=[observer])

    def end() -> None:
        detach()
        observer.close()

    return end
