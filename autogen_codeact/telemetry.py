"""OpenTelemetry spans of model calls, blocks of code, host tools and sandboxes, inside those that AutoGen makes of agents."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from autogen_codeact import __version__
from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware
from autogen_codeact.teams.parts import executors_of, wrap_models
from codeact_sandbox import AsyncSandbox, Sandbox
from codeact_sandbox.types import observers
from codeact_sandbox.types.result import Result

__all__ = ["Instrumentation", "instrument"]

logger = logging.getLogger("autogen_codeact")

# Names of OpenTelemetry's conventions for generative AI 0.1.0. They may still change, and are no part of its API package.
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
# Arguments of requests, by AutoGen's names.
REQUEST = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}
# Names of providers by AutoGen's classes, those of the conventions where there are some.
PROVIDERS = {
    "AzureOpenAIChatCompletionClient": "azure.ai.openai",
    "BaseOpenAIChatCompletionClient": "openai",
    "AnthropicBedrockChatCompletionClient": "aws.bedrock",
    "BaseAnthropicChatCompletionClient": "anthropic",
    "AzureAIChatCompletionClient": "azure.ai.inference",
    "BaseOllamaChatCompletionClient": "ollama",
    "LlamaCppChatCompletionClient": "llama_cpp",
    "ReplayChatCompletionClient": "replay",
}
# The variable by which OpenTelemetry's own instrumentations are told whether spans contain messages.
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_CHARS = 200_000  # characters of content in one attribute


class Instrumentation(ExitStack):
    """What `instrument` returns: ends the spans with `uninstrument()`, or at the end of a `with` block."""

    def uninstrument(self) -> None:
        """Make no spans any more, also none of blocks that run now; repeated calls are harmless."""
        self.close()


def instrument(
    *parts: ChatAgent | Team | AsyncSandbox | Sandbox,
    tracer_provider: TracerProvider | None = None,
    content: bool | None = None,
    redact: Callable[[str], str] | None = None,
) -> Instrumentation:
    """Make OpenTelemetry spans of what agents and teams do from now on, with all that is inside: docs/telemetry.md.

    What two parts of one call share, such as an executor, is reported once. Without an SDK it does nothing.

    Args:
        parts: Agents, teams, executors and sandboxes.
        tracer_provider: Where the spans go. Default: the global provider, also one that is set later.
        content: Whether spans contain messages, code, output, and arguments and results of tools. Default: what the variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        redact: Called with each text of the content; returns what may be shown.

    Returns:
        Ends it: use it with `with`, or call `uninstrument()`. It need not be kept.

    Raises:
        TypeError: Something can't be instrumented.
    """
    for part in parts:
        if not isinstance(part, ChatAgent | Team | AsyncSandbox | Sandbox):
            raise TypeError(f"{part!r} can't be instrumented: give agents, teams, executors or sandboxes.")
    if content is None:
        # Newer instrumentations take the name of a place instead of "true"; ours has only one place, the span.
        content = os.environ.get(CAPTURE_CONTENT, "").strip().lower() in ("true", "1", "span_only", "span_and_event")
    spans = Spans(tracer_provider, Content(redact) if content else None)
    with Instrumentation() as ends:
        ends.callback(wrap_models(parts, lambda client: TracedModel(client, spans)))
        found: list[Any] = [executor for part in parts for executor in executors_of(part) or [part]]
        for executor in {id(each): each for each in found}.values():
            if isinstance(executor, AsyncSandbox | Sandbox):
                ends.callback(executor.attach(observers=[SpanObserver(spans)]))
        return ends.pop_all()


class Content:
    """Turns messages and values into the text of attributes: redacted, encodable and of limited length."""

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact

    def value(self, value: Any) -> str:
        """Return a value as JSON, or a text as it is."""
        return self._shown(value) if isinstance(value, str) else _json(self._shown(value))[:MAX_CHARS]

    def input(self, messages: Sequence[LLMMessage]) -> str:
        """Return the messages that a model was given; only the last ones, if they are too long."""
        shown: list[str] = []
        for message in reversed(messages):
            text = _json(self._shown(_message(message)))
            if shown and sum(map(len, shown)) + len(text) > MAX_CHARS:
                break
            shown.append(text)
        return f"[{', '.join(shown[::-1])}]"

    def output(self, result: CreateResult) -> str:
        """Return the answer of a model."""
        parts = _answer_parts(result.content, result.thought)
        # AutoGen's name of a reason differs from that of the conventions in one case.
        reason = result.finish_reason.replace("function_calls", "tool_call")
        return _json([self._shown({"role": "assistant", "parts": parts, "finish_reason": reason})])

    def _shown(self, value: Any) -> Any:
        if isinstance(value, str):
            return _safe(self._redacted(value), MAX_CHARS)
        if isinstance(value, Mapping):
            return {_safe(self._redacted(str(key))): self._shown(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._shown(each) for each in value]
        return value

    def _redacted(self, text: str) -> str:
        try:
            return text if self._redact is None else str(self._redact(text))
        except Exception as error:
            logger.exception("the redact function of the telemetry failed")
            return f"withheld, because redact failed ({type(error).__name__})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _safe(text: str, max_chars: int = 200) -> str:
    """Return a text of limited length without halves of surrogate pairs, on which exporters fail with a whole batch."""
    return text[:max_chars].encode("utf-8", "replace").decode()


def _message(message: LLMMessage) -> dict[str, Any]:
    if isinstance(message, SystemMessage):
        return {"role": "system", "parts": [_content_part(message.content)]}
    if isinstance(message, UserMessage):
        contents = [message.content] if isinstance(message.content, str) else message.content
        return {"role": "user", "parts": [_content_part(each) for each in contents]}
    if isinstance(message, AssistantMessage):
        return {"role": "assistant", "parts": _answer_parts(message.content, message.thought)}
    results = [{"type": "tool_call_response", "id": each.call_id, "response": each.content} for each in message.content]
    return {"role": "tool", "parts": results}


def _answer_parts(content: str | list[FunctionCall], thought: str | None) -> list[dict[str, Any]]:
    parts = [{"type": "reasoning", "content": thought}] if thought else []
    if isinstance(content, str):
        return [*parts, _content_part(content)]
    calls = [{"type": "tool_call", "id": each.id, "name": each.name, "arguments": each.arguments} for each in content]
    return [*parts, *calls]


def _content_part(content: str | Image) -> dict[str, Any]:
    # An image itself would be megabytes in an attribute.
    return {"type": "text", "content": content} if isinstance(content, str) else {"type": "blob", "modality": "image"}


class Spans:
    """Makes the spans of one instrumentation; `content` writes what they contain, or is None."""

    def __init__(self, provider: TracerProvider | None, content: Content | None) -> None:
        self._tracer = trace.get_tracer("autogen_codeact", __version__, tracer_provider=provider)
        self.content = content

    def start(
        self,
        name: str,
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        duration_s: float = 0.0,
    ) -> Span:
        """Start the span of what begins now, or of what is over and took this time."""
        begun_ns = time.time_ns() - int(duration_s * 1_000_000_000)
        return self._tracer.start_span(name, None, kind, dict(attributes), start_time=begun_ns)

    def note(self, span: Span, name: str, value: Any) -> None:
        if self.content is not None and span.is_recording():
            span.set_attribute(name, self.content.value(value))

    def fail(self, span: Span, kind: str, message: str = "") -> None:
        span.set_attribute("error.type", _safe(kind))
        described = self.content.value(message) if self.content is not None and message else None
        span.set_status(Status(StatusCode.ERROR, described))


class TracedModel(ModelMiddleware):
    """Makes a span of each call of a model client."""

    def __init__(self, client: ChatCompletionClient, spans: Spans) -> None:
        super().__init__(client)
        self._spans = spans

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call, which runs with its span as the current one; the reader's own stays what it is."""
        attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        with _logged():
            attributes |= _request(self.client, call)
        name = f"chat {attributes.get('gen_ai.request.model', '')}".strip()
        span = self._spans.start(name, attributes, kind=SpanKind.CLIENT)
        content = self._spans.content if span.is_recording() else None
        with _logged():
            span.set_attributes({"gen_ai.input.messages": content.input(call.messages)} if content is not None else {})
        inside = trace.set_span_in_context(span)
        try:
            async with aclosing(call.items()) as items:
                while True:
                    token = otel_context.attach(inside)
                    try:
                        item = await anext(items, None)
                    finally:
                        otel_context.detach(token)
                    if item is None:
                        break
                    if isinstance(item, CreateResult):
                        with _logged():
                            _note_answer(span, item, content)
                    yield item
        except (Exception, asyncio.CancelledError) as error:
            self._spans.fail(span, type(error).__qualname__, str(error))
            raise
        finally:
            span.end()


@contextmanager
def _logged() -> Iterator[None]:
    """Log errors of what describes something for a span: telemetry never makes a run fail."""
    try:
        yield
    except Exception:
        logger.exception("the telemetry failed")


def _request(client: ChatCompletionClient, call: ModelCall) -> dict[str, Any]:
    while isinstance(inner := getattr(client, "client", None), ChatCompletionClient):
        client = inner  # that a cache or a middleware asks
    names = [kind.__name__ for kind in type(client).__mro__]
    provider = next((PROVIDERS[name] for name in names if name in PROVIDERS), names[0])
    attributes: dict[str, Any] = {"gen_ai.provider.name": provider, "gen_ai.request.stream": call.stream}
    arguments = {**getattr(client, "_create_args", {}), **call.options.get("extra_create_args", {})}
    numbers = {name: value for name, value in arguments.items() if name in REQUEST and isinstance(value, int | float)}
    attributes.update({REQUEST[name]: value for name, value in numbers.items()})
    model = arguments.get("model", getattr(client, "_model", None))
    if isinstance(model, str) and model:
        attributes["gen_ai.request.model"] = model
    return attributes


def _note_answer(span: Span, result: CreateResult, content: Content | None) -> None:
    reason = "tool_calls" if result.finish_reason == "function_calls" else result.finish_reason
    span.set_attribute("gen_ai.response.finish_reasons", [reason])
    if result.usage.prompt_tokens or result.usage.completion_tokens:  # AutoGen writes 0 for what a server does not say
        span.set_attribute("gen_ai.usage.input_tokens", result.usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", result.usage.completion_tokens)
    if content is not None:
        span.set_attribute("gen_ai.output.messages", content.output(result))


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
        self._spans.start(
            "codeact.sandbox.start",
            {"codeact.sandbox": event.sandbox, "codeact.backend": event.backend},
            duration_s=event.duration_s,
        ).end()

    def sandbox_stopped(self, event: observers.SandboxStopped) -> None:
        """Make a span of a stop that is over; if the sandbox had broken, it has an error."""
        attributes = {"codeact.sandbox": event.sandbox}
        span = self._spans.start("codeact.sandbox.stop", attributes, duration_s=event.duration_s)
        if event.error is not None:
            self._spans.fail(span, "SandboxDied", event.error)
        span.end()

    def block_started(self, event: observers.BlockStarted) -> None:
        """Begin the span of a block."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "execute_code",
            "gen_ai.tool.type": "function",
            "codeact.language": _safe(event.language),
            "codeact.block": event.block,
            "codeact.sandbox": event.sandbox,
        }
        span = self._spans.start("execute_tool execute_code", attributes)
        self._spans.note(span, TOOL_ARGUMENTS, {"code": event.code})
        self._blocks[id(event)] = span, otel_context.attach(trace.set_span_in_context(span))

    def block_finished(self, event: observers.BlockFinished) -> None:
        """End the span of a block, with its outcome."""
        if id(event.started) not in self._blocks:
            return
        span, token = self._blocks.pop(id(event.started))
        otel_context.detach(token)
        if event.result is not None:
            self._note_result(span, event.result)
        else:
            kind, _, message = (event.error or "").partition(": ")
            self._spans.fail(span, kind or "SandboxError", message)
        span.end()

    def _note_result(self, span: Span, result: Result) -> None:
        span.set_attribute("process.exit.code", result.exit_code)
        span.set_attributes({"codeact.outcome": result.outcome, "codeact.state": result.state})
        self._spans.note(span, TOOL_RESULT, result.output)
        if result.outcome == "ok" and result.exit_code == 0:
            return
        error = result.error
        kind = error.type if error is not None else "nonzero_exit"
        if result.outcome not in ("ok", "error"):
            kind = result.outcome
        self._spans.fail(span, kind, error.message if error is not None else "")

    def call_started(self, event: observers.CallIntent) -> None:
        """Begin the span of a call to a host tool, and make it the current one of the call's task, which ends with the call."""
        span = self._call_span(event)
        self._calls[event.block, event.number] = span
        otel_context.attach(trace.set_span_in_context(span))

    def call_finished(self, event: observers.CallFinished) -> None:
        """End the span of a call; one that never started gets a span, too."""
        call, intent = event.call, event.intent
        span = self._calls.pop((intent.block, intent.number), None)
        if span is None:
            span = self._call_span(intent, call.duration_s)
        span.set_attribute("codeact.outcome", call.outcome)
        if call.outcome == "ok":
            self._spans.note(span, TOOL_RESULT, call.result)
        else:
            kind = call.error.type if call.error is not None and call.outcome in ("error", "refused") else call.outcome
            self._spans.fail(span, kind, call.error.message if call.error is not None else "")
        span.end()

    def _call_span(self, intent: observers.CallIntent, duration_s: float = 0.0) -> Span:
        call_id = f"{intent.block.sandbox}/{intent.block.block}/{intent.number}"
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": _safe(intent.name),
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
        }
        span = self._spans.start(f"execute_tool {_safe(intent.name)}", attributes, duration_s=duration_s)
        self._spans.note(span, TOOL_ARGUMENTS, intent.arguments)
        return span
