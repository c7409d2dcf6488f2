"""Starting and ending spans, and running code with a span as the current one."""

from __future__ import annotations

import logging
import threading
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


ATTRIBUTE = "_codeact_telemetry"
_changing = threading.RLock()


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
