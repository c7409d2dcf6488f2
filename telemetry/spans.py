"""Spans: starting and ending them, running code with one as the current one, and those of blocks and host tools."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from autogen_codeact import __version__
from autogen_codeact.telemetry.content import Content, Redact, encodable
from codeact_sandbox.types import observers
from codeact_sandbox.types.result import Result

logger = logging.getLogger("autogen_codeact")

P = ParamSpec("P")
T = TypeVar("T")

# Names of OpenTelemetry's conventions for generative AI 0.1.0. They may still change, and are no part of its API package.
OPERATION = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
AGENT_NAME = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

MAX_NAME = 200
ATTRIBUTE = "_codeact_telemetry"
_changing = threading.RLock()
EXECUTE_CODE = "execute_code"
BLOCK = "codeact.block"
LANGUAGE = "codeact.language"
OUTCOME = "codeact.outcome"
STATE = "codeact.state"
SANDBOX = "codeact.sandbox"
BACKEND = "codeact.backend"
EXIT_CODE = "process.exit.code"
NONZERO_EXIT = "nonzero_exit"  # the error of code that ended itself with an exit code, without an exception
NS = 1_000_000_000


def short(name: str) -> str:
    """Return a name that code in a sandbox or a model has chosen, of limited length, and one that exporters can encode."""
    return encodable(name[:MAX_NAME])


def harmless(note: Callable[P, None]) -> Callable[P, None]:
    """Let a function that describes something for a span log its errors: telemetry never makes a run fail."""

    @wraps(note)
    def noted(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            note(*args, **kwargs)
        except Exception:
            logger.exception("the telemetry failed in %s", note.__name__)

    return noted


class Spans:
    """Makes the spans of one instrumentation."""

    def __init__(self, provider: TracerProvider | None, *, content: bool, redact: Redact | None) -> None:
        self._tracer = trace.get_tracer("autogen_codeact", __version__, tracer_provider=provider)
        self.content = Content(redact) if content else None
        """Writes content for attributes; None if the spans have none."""

    def start(
        self,
        name: str,
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        start_time_ns: int | None = None,
    ) -> Span:
        """Start a span."""
        return self._tracer.start_span(name, None, kind, dict(attributes), start_time=start_time_ns)

    @contextmanager
    def current(self, name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
        """Run a part of one function with a new span as the current one."""
        span = self.start(name, attributes)
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            yield span
        except BaseException as error:
            self.fail(span, type(error).__qualname__, str(error))
            raise
        finally:
            otel_context.detach(token)
            span.end()

    async def stream(self, span: Span, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yield what a stream yields; its code runs with the span as the current one, and the span ends with it.

        The reader's own context stays what it is: a generator that attaches a span to it and yields would make that span the
        current one of its reader, too.
        """
        try:
            async with aclosing(_within(trace.set_span_in_context(span), items)) as inside:
                async for item in inside:
                    yield item
        except GeneratorExit:
            raise  # the reader has enough, which is not an error
        except BaseException as error:
            self.fail(span, type(error).__qualname__, str(error))
            raise
        finally:
            span.end()

    def note(self, span: Span, name: str, value: Any) -> None:
        """Note content, if spans have any."""
        if self.content is not None and span.is_recording():
            span.set_attribute(name, self.content.value(value))

    def fail(self, span: Span, kind: str, message: str = "") -> None:
        """Mark a span as failed."""
        span.set_attribute(ERROR_TYPE, short(kind))
        described = self.content.value(message) if self.content is not None and message else None
        span.set_status(Status(StatusCode.ERROR, described))


async def detached(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield what a stream yields, and keep what it makes the current span from its reader."""
    async with aclosing(_within(otel_context.get_current(), items)) as inside:
        async for item in inside:
            yield item


async def _within(inside: Context, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Run each step of a stream in its own OpenTelemetry context, which it may change for its next steps."""
    try:
        while True:
            token = otel_context.attach(inside)
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            finally:
                inside = otel_context.get_current()
                otel_context.detach(token)
            yield item
    finally:
        token = otel_context.attach(inside)
        try:
            if hasattr(items, "aclose"):  # else it is an iterator that somebody wrote as a class
                await items.aclose()
        finally:
            otel_context.detach(token)


class Patch:
    """A method of one object that is replaced by another function."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._owner, self._name = owner, name
        self._had_own = name in vars(owner)
        self._before = getattr(owner, name)
        replaced = make(self._before)
        self._active = True

        @wraps(self._before)  # agents look at its signature
        def patched(*args: Any, **kwargs: Any) -> Any:
            return (replaced if self._active else self._before)(*args, **kwargs)

        self._patched = patched
        setattr(owner, name, patched)

    def undo(self) -> None:
        """Put the method back. If it has been replaced again since, this replacement just passes on."""
        self._active = False
        if vars(self._owner).get(self._name) is not self._patched:
            return
        if self._had_own:
            setattr(self._owner, self._name, self._before)
        else:
            delattr(self._owner, self._name)


def undo_all(*patches: Patch) -> Callable[[], None]:
    """Return a function that undoes patches."""

    def undo() -> None:
        for patch in patches:
            patch.undo()

    return undo


@dataclass
class _Use:
    """How many instrumentations for one tracer provider use an object."""

    provider: object
    count: int
    undo: Callable[[], None]


def share(part: Any, provider: object, begin: Callable[[], Callable[[], None]]) -> Callable[[], None]:
    """Instrument an object, unless it already is for the same provider: what two agents share is reported once."""
    key = id(provider)
    with _changing:
        uses: dict[int, _Use] = vars(part).setdefault(ATTRIBUTE, {})
        if key not in uses:
            uses[key] = _Use(provider, 0, begin())
        uses[key].count += 1

    def end() -> None:
        with _changing:
            use = uses[key]
            use.count -= 1
            if use.count:
                return
            del uses[key]
            if not uses:
                vars(part).pop(ATTRIBUTE, None)
            use.undo()

    return end


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
        self._spans.note(span, TOOL_ARGUMENTS, {"code": event.code})
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
        self._spans.note(span, TOOL_RESULT, result.output)
        if result.outcome == "ok" and result.exit_code == 0:
            return
        error = result.error
        kind = error.type if error is not None else NONZERO_EXIT
        kind = kind if result.outcome in ("ok", "error") else result.outcome
        self._spans.fail(span, kind, error.message if error is not None else "")

    def call_started(self, event: observers.CallIntent) -> None:
        """Begin the span of a call to a host tool, and make it the current one of the call's task, which ends with the call."""
        span = self._spans.start(f"execute_tool {short(event.name)}", _call_attributes(event))
        self._spans.note(span, TOOL_ARGUMENTS, event.arguments)
        self._calls[event.block, event.number] = span
        otel_context.attach(trace.set_span_in_context(span))

    def call_finished(self, event: observers.CallFinished) -> None:
        """End the span of a call; one that never started gets a span, too."""
        call = event.call
        span = self._calls.pop((event.intent.block, event.intent.number), None)
        if span is None:
            span = self._past(f"execute_tool {short(call.name)}", _call_attributes(event.intent), call.duration_s)
            self._spans.note(span, TOOL_ARGUMENTS, event.intent.arguments)
        span.set_attribute(OUTCOME, call.outcome)
        if call.outcome == "ok":
            self._spans.note(span, TOOL_RESULT, call.result)
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

    def _past(self, name: str, attributes: dict[str, Any], duration_s: float) -> Span:
        return self._spans.start(name, attributes, start_time_ns=time.time_ns() - int(duration_s * NS))


def _call_attributes(intent: observers.CallIntent) -> dict[str, Any]:
    return {
        OPERATION: "execute_tool",
        TOOL_NAME: short(intent.name),
        TOOL_TYPE: "function",
        "gen_ai.tool.call.id": f"{intent.block.sandbox}/{intent.block.block}/{intent.number}",
    }
