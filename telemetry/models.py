"""A `chat` span for each call of a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult
from opentelemetry.trace import Span, SpanKind

from autogen_codeact.agents.model_calls import Items, ModelCall, whole
from autogen_codeact.telemetry.spans import OPERATION, Patch, Spans, harmless, undo_all

MODEL = "gen_ai.request.model"
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


def instrument_model(client: ChatCompletionClient, spans: Spans) -> Callable[[], None]:
    """Make a span of each call of a model client."""
    fixed = _describe(client)

    async def trace(call: ModelCall) -> Items:
        attributes = {**fixed, "gen_ai.request.stream": True} if call.stream else dict(fixed)
        _add_request(attributes, client, call.options)
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


def _describe(client: ChatCompletionClient) -> dict[str, Any]:
    inner = getattr(client, "client", None)
    if isinstance(inner, ChatCompletionClient):  # of a cache
        return _describe(inner)
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
    inner = getattr(client, "client", None)
    if isinstance(inner, ChatCompletionClient):
        _add_request(attributes, inner, kwargs)
        return
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
