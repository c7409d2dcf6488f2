"""`instrument`: spans for agents, teams and model calls, with everything inside them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, nullcontext
from functools import partial
from typing import Any, Self

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.models import ChatCompletionClient, CreateResult
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, TracerProvider

from autogen_codeact.agents.model_calls import Items, ModelCall, whole
from autogen_codeact.teams.parts import agents_of, executors_of, models_of, teams_of
from autogen_codeact.telemetry.content import Redact
from autogen_codeact.telemetry.spans import (
    AGENT_DESCRIPTION,
    AGENT_NAME,
    OPERATION,
    Patch,
    SpanObserver,
    Spans,
    detached,
    harmless,
    share,
    undo_all,
)
from codeact_sandbox import AsyncSandbox, Sandbox
from codeact_sandbox.protocols import ObservedExecutor, implements

MODEL = "gen_ai.request.model"
# Arguments of requests, by AutoGen's names.
_SAME_NAMES = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty", "seed")
REQUEST = {name: f"gen_ai.request.{name}" for name in _SAME_NAMES} | {
    "max_completion_tokens": "gen_ai.request.max_tokens"
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
Method = Callable[..., Any]
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which OpenTelemetry's own instrumentations are told whether spans contain messages."""
_CLASSES = ChatAgent | Team | Sandbox | AsyncSandbox | ChatCompletionClient
Part = _CLASSES | ObservedExecutor


def instrument_model(client: ChatCompletionClient, spans: Spans) -> Callable[[], None]:
    """Make a span of each call of a model client."""
    asked = _innermost(client)
    fixed = _describe(asked)

    async def trace(call: ModelCall) -> Items:
        attributes = {**fixed, "gen_ai.request.stream": True} if call.stream else dict(fixed)
        _add_request(attributes, asked, call.options)
        span = spans.start(f"chat {attributes.get(MODEL, '')}".strip(), attributes, kind=SpanKind.CLIENT)
        _note_input(spans, span, call.messages)
        began, waiting = time.monotonic(), True
        async with aclosing(spans.stream(span, call.items())) as items:
            async for item in items:
                if not isinstance(item, str):
                    _note_result(spans, span, item)
                elif waiting:
                    waiting = False
                    span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - began)
                yield item

    def create(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda messages, **options: whole(trace(ModelCall(original, False, messages, options)))

    def create_stream(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda messages, **options: trace(ModelCall(original, True, messages, options))

    return undo_all(Patch(client, "create", create), Patch(client, "create_stream", create_stream))


def _innermost(client: ChatCompletionClient) -> ChatCompletionClient:
    """Return the client that a cache or a middleware asks."""
    inner = getattr(client, "client", None)
    return _innermost(inner) if isinstance(inner, ChatCompletionClient) else client


def _describe(client: ChatCompletionClient) -> dict[str, Any]:
    names = [kind.__name__ for kind in type(client).__mro__]
    provider = next((PROVIDERS[name] for name in names if name in PROVIDERS), names[0])
    attributes: dict[str, Any] = {OPERATION: "chat", "gen_ai.provider.name": provider}
    url = getattr(getattr(client, "_client", None), "base_url", None)
    if host := getattr(url, "host", None):
        attributes["server.address"] = str(host)
        attributes["server.port"] = getattr(url, "port", None) or (80 if getattr(url, "scheme", "") == "http" else 443)
    return attributes


@harmless
def _add_request(attributes: dict[str, Any], client: ChatCompletionClient, kwargs: Mapping[str, Any]) -> None:
    arguments = {**_mapping(getattr(client, "_create_args", None)), **_mapping(kwargs.get("extra_create_args"))}
    numbers = {name: value for name, value in arguments.items() if name in REQUEST and isinstance(value, int | float)}
    attributes.update({REQUEST[name]: value for name, value in numbers.items()})
    model = arguments.get("model", getattr(client, "_model", None))
    if isinstance(model, str) and model:
        attributes[MODEL] = model
    if stop := arguments.get("stop"):
        attributes["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else [str(each) for each in stop]
    if kwargs.get("json_output"):
        attributes["gen_ai.output.type"] = "json"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@harmless
def _note_input(spans: Spans, span: Span, messages: Any) -> None:
    if spans.content is not None and span.is_recording():
        span.set_attribute("gen_ai.input.messages", spans.content.input(messages))


@harmless
def _note_result(spans: Spans, span: Span, result: CreateResult) -> None:
    reason = "tool_calls" if result.finish_reason == "function_calls" else result.finish_reason
    span.set_attribute("gen_ai.response.finish_reasons", [reason])
    if result.usage.prompt_tokens or result.usage.completion_tokens:  # AutoGen writes 0 for what a server does not say
        span.set_attribute("gen_ai.usage.input_tokens", result.usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", result.usage.completion_tokens)
    if spans.content is not None and span.is_recording():
        span.set_attribute("gen_ai.output.messages", spans.content.output(result))


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
        if isinstance(part, type) or not (isinstance(part, _CLASSES) or implements(part, ObservedExecutor)):
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
        for executor in new([each for each in executors_of(part) or [part] if implements(each, ObservedExecutor)]):
            yield executor, partial(_instrument_executor, executor, spans)


def _instrument_executor(executor: ObservedExecutor, spans: Spans) -> Callable[[], None]:
    observer = SpanObserver(spans)
    detach = executor.attach(observers=[observer])

    def end() -> None:
        detach()
        observer.close()

    return end
