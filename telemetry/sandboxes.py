"""Spans of blocks of code, of host tools, and of sandboxes that start and stop."""

from __future__ import annotations

import time
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span

from autogen_codeact.telemetry.spans import OPERATION, TOOL_ARGUMENTS, TOOL_NAME, TOOL_RESULT, TOOL_TYPE, Spans, short
from codeact_sandbox.types import observers
from codeact_sandbox.types.result import Result

EXECUTE_CODE = "execute_code"
BLOCK = "codeact.block"
LANGUAGE = "codeact.language"
OUTCOME = "codeact.outcome"
STATE = "codeact.state"
SANDBOX = "codeact.sandbox"
BACKEND = "codeact.backend"
EXIT_CODE = "process.exit.code"
NONZERO_EXIT = "nonzero_exit"
"""The error of code that ended itself with an exit code, without an exception."""
NS = 1_000_000_000


class SpanObserver:
    """Makes spans of what a sandbox reports. An `Observer`.

    Events come in the task that runs the block, or in that of the call; there the span is made the current one, so that
    what a host tool does is inside the span of its call.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._blocks: dict[int, tuple[Span, Any]] = {}  # with the token that restores the previous span
        self._calls: dict[tuple[observers.BlockId, int], Span] = {}

    def sandbox_started(self, event: observers.SandboxStarted) -> None:
        """Make a span of a start that is over."""
        self._past("codeact.sandbox.start", {SANDBOX: event.sandbox, BACKEND: event.backend}, event.duration_s).end()

    def sandbox_stopped(self, event: observers.SandboxStopped) -> None:
        """Make a span of a stop that is over; if the sandbox had broken, it has an error."""
        span = self._past("codeact.sandbox.stop", {SANDBOX: event.sandbox}, event.duration_s)
        if event.error is not None:
            self._spans.fail(span, "SandboxDied", event.error)
        span.end()

    def block_started(self, event: observers.BlockStarted) -> None:
        """Begin the span of a block."""
        attributes = {
            OPERATION: "execute_tool",
            TOOL_NAME: EXECUTE_CODE,
            TOOL_TYPE: "function",
            LANGUAGE: short(event.language),
            BLOCK: event.block,
            SANDBOX: event.sandbox,
        }
        span = self._spans.start(f"execute_tool {EXECUTE_CODE}", attributes)
        if self._spans.content is not None and span.is_recording():
            span.set_attribute(TOOL_ARGUMENTS, self._spans.content.value({"code": event.code}))
        self._blocks[id(event)] = span, otel_context.attach(trace.set_span_in_context(span))

    def block_finished(self, event: observers.BlockFinished) -> None:
        """End the span of a block, with its outcome."""
        opened = self._blocks.pop(id(event.started), None)
        if opened is None:
            return
        span, token = opened
        otel_context.detach(token)
        if event.result is not None:
            self._note_result(span, event.result)
        else:
            kind, _, message = (event.error or "").partition(": ")
            self._spans.fail(span, kind or "SandboxError", message)
        span.end()

    def _note_result(self, span: Span, result: Result) -> None:
        span.set_attributes({EXIT_CODE: result.exit_code, OUTCOME: result.outcome, STATE: result.state})
        if self._spans.content is not None and span.is_recording():
            span.set_attribute(TOOL_RESULT, self._spans.content.value(result.output))
        if result.outcome == "ok" and result.exit_code == 0:
            return
        error = result.error
        kind = error.type if error is not None else NONZERO_EXIT
        kind = kind if result.outcome in ("ok", "error") else result.outcome
        self._spans.fail(span, kind, error.message if error is not None else "")

    def call_started(self, event: observers.CallIntent) -> None:
        """Begin the span of a call to a host tool, and make it the current one of the call's task, which ends with the call."""
        span = self._spans.start(f"execute_tool {short(event.name)}", _call_attributes(event))
        self._note_arguments(span, event)
        self._calls[event.block, event.number] = span
        otel_context.attach(trace.set_span_in_context(span))

    def call_finished(self, event: observers.CallFinished) -> None:
        """End the span of a call; one that never started gets a span, too."""
        call = event.call
        span = self._calls.pop((event.intent.block, event.intent.number), None)
        if span is None:
            span = self._past(f"execute_tool {short(call.name)}", _call_attributes(event.intent), call.duration_s)
            self._note_arguments(span, event.intent)
        span.set_attribute(OUTCOME, call.outcome)
        if call.outcome == "ok":
            if self._spans.content is not None and span.is_recording():
                span.set_attribute(TOOL_RESULT, self._spans.content.value(call.result))
        else:
            kind = call.error.type if call.error is not None and call.outcome in ("error", "refused") else call.outcome
            self._spans.fail(span, kind, call.error.message if call.error is not None else "")
        span.end()

    def close(self) -> None:
        """End the spans of what still runs, of which no more will be reported."""
        for span in [*(span for span, _ in self._blocks.values()), *self._calls.values()]:
            span.end()
        self._blocks.clear()
        self._calls.clear()

    def _note_arguments(self, span: Span, intent: observers.CallIntent) -> None:
        if self._spans.content is not None and span.is_recording():
            span.set_attribute(TOOL_ARGUMENTS, self._spans.content.value(intent.arguments))

    def _past(self, name: str, attributes: dict[str, Any], duration_s: float) -> Span:
        return self._spans.start(name, attributes, start_time_ns=time.time_ns() - int(duration_s * NS))


def _call_attributes(intent: observers.CallIntent) -> dict[str, Any]:
    return {
        OPERATION: "execute_tool",
        TOOL_NAME: short(intent.name),
        TOOL_TYPE: "function",
        "gen_ai.tool.call.id": f"{intent.block.sandbox}/{intent.block.block}/{intent.number}",
    }
