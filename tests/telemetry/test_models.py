"""`chat` spans of AutoGen's model clients."""

import asyncio
import json
from typing import Any

import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from PIL import Image as PILImage

from autogen_codeact.telemetry import content as contents
from autogen_codeact.telemetry import instrument
from tests.agents.support import scripted
from tests.cases import case
from tests.openai_server import OpenAIServer, Reply

from .trees import Exported, attributes

QUESTION = [UserMessage(content="What?", source="user")]
WIRE = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "scripted",
    "server.address": "127.0.0.1",
}


def streaming(answer: str) -> ReplayChatCompletionClient:
    """A model whose streams come in words."""
    return ReplayChatCompletionClient([answer], scripted().model_info)


async def test_span_of_a_call_over_http(exported: Exported) -> None:
    async with OpenAIServer([Reply("42", prompt_tokens=7, completion_tokens=3)]) as server:
        client = server.client(temperature=0.5, max_tokens=10, stop=["END"], seed=1)
        with instrument(client, tracer_provider=exported.provider):
            await client.create(QUESTION, extra_create_args={"temperature": 0.25}, json_output=True)
    span = exported.one("chat scripted")
    assert span.kind == SpanKind.CLIENT
    assert attributes(span) == {
        **WIRE,
        "gen_ai.output.type": "json",
        "gen_ai.request.temperature": 0.25,
        "gen_ai.request.max_tokens": 10,
        "gen_ai.request.seed": 1,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    assert span.attributes is not None
    assert f":{span.attributes['server.port']}/" in server.base_url


async def test_span_of_a_stream_over_http(exported: Exported) -> None:
    async with OpenAIServer([Reply("four two", finish_reason="length")]) as server:
        client = server.client()
        with instrument(client, tracer_provider=exported.provider):
            current = [trace.get_current_span() async for _ in client.create_stream(QUESTION, include_usage=True)]
    assert set(current) == {trace.INVALID_SPAN}, "the reader of a stream is not inside its span"
    span = exported.one("chat scripted")
    assert span.attributes is not None
    assert span.attributes["gen_ai.response.time_to_first_chunk"] > 0  # type: ignore[operator]
    assert attributes(span) == {
        **WIRE,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }


async def test_span_of_a_refused_call(exported: Exported) -> None:
    for stream in [False, True]:
        with case(stream):
            exported.exporter.clear()
            async with OpenAIServer([Reply("the key sk-1 is wrong", status=400)]) as server:
                client = server.client()
                with instrument(client, tracer_provider=exported.provider), pytest.raises(Exception, match="sk-1"):
                    _ = (
                        [item async for item in client.create_stream(QUESTION)]
                        if stream
                        else await client.create(QUESTION)
                    )
            span = exported.one("chat scripted")
            assert attributes(span)["error.type"] == "BadRequestError"
            assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())


async def test_a_stream_that_its_reader_leaves_ends_without_an_error(exported: Exported) -> None:
    client = streaming("one two three")
    with instrument(client, tracer_provider=exported.provider):
        stream = client.create_stream(QUESTION)
        assert await anext(stream) == "one "
        await stream.aclose()
    assert exported.tree() == ["chat"]
    assert exported.one("chat").status.status_code == StatusCode.UNSET


async def test_two_streams_that_are_read_in_turns_have_their_own_spans(exported: Exported) -> None:
    first, second = streaming("a b"), streaming("c d")
    with instrument(first, second, tracer_provider=exported.provider):
        streams = [client.create_stream(QUESTION) for client in (first, second)]
        for _ in range(3):
            for stream in streams:
                await anext(stream)
        for stream in streams:
            assert [item async for item in stream] == []
    one, other = exported.spans
    assert one.parent is other.parent is None
    assert one.context.trace_id != other.context.trace_id


async def test_span_of_a_cancelled_call(exported: Exported) -> None:
    async with OpenAIServer([Reply(silent=True)]) as server:
        client = server.client()
        with instrument(client, tracer_provider=exported.provider):
            call = asyncio.ensure_future(client.create(QUESTION))
            await server.requested(1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert exported.tree() == ["chat scripted !CancelledError"]


async def test_all_kinds_of_messages_as_content(exported: Exported) -> None:
    call = FunctionCall(id="1", name="look", arguments='{"at": "it"}')
    usage = RequestUsage(prompt_tokens=1, completion_tokens=2)
    result = CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False, thought="Hm.")
    client = scripted(result, vision=True)
    image = Image(PILImage.new("RGB", (2, 2)))
    answer = FunctionExecutionResult(content="seen", name="look", call_id="1", is_error=False)
    messages: Any = [
        SystemMessage(content="Be kind."),
        UserMessage(content=["What is this?", image], source="user"),
        AssistantMessage(content=[call], source="actor", thought="So."),
        FunctionExecutionResultMessage(content=[answer]),
        AssistantMessage(content="It.", source="actor"),
    ]
    with instrument(client, tracer_provider=exported.provider, content=True):
        await client.create(messages)
    written = attributes(exported.one("chat"))
    called = {"type": "tool_call", "id": "1", "name": "look", "arguments": '{"at": "it"}'}
    assert json.loads(written["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
        {
            "role": "user",
            "parts": [{"type": "text", "content": "What is this?"}, {"type": "blob", "modality": "image"}],
        },
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "So."}, called]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "seen"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "It."}]},
    ]
    assert json.loads(written["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "Hm."}, called],
            "finish_reason": "tool_call",
        }
    ]
    assert written["gen_ai.response.finish_reasons"] == ("tool_calls",)


async def test_long_content_keeps_the_last_messages_and_says_where_it_was_cut(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MAX_CHARS", 150)
    client = scripted("x" * 1000)
    messages = [UserMessage(content=f"{number}" * 60, source="user") for number in range(3)]
    with instrument(client, tracer_provider=exported.provider, content=True):
        await client.create(messages)
    written = attributes(exported.one("chat"))
    texts = [each["parts"][0]["content"] for each in json.loads(written["gen_ai.input.messages"])]
    assert texts == ["1" * 34 + contents.CUT, "2" * 60]
    assert len(written["gen_ai.output.messages"]) < 300


async def test_content_is_withheld_if_redact_fails(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    def redact(text: str) -> str:
        raise RuntimeError("no idea")

    client = scripted("the secret")
    with instrument(client, tracer_provider=exported.provider, content=True, redact=redact):
        await client.create(QUESTION)
    written = attributes(exported.one("chat"))
    assert "secret" not in written["gen_ai.output.messages"]
    assert "withheld, because redact failed (RuntimeError)" in written["gen_ai.output.messages"]
    assert set(caplog.messages) == {"the redact function of the telemetry failed"}


async def test_what_telemetry_can_not_describe_does_not_make_a_call_fail(
    exported: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    class OddMessage:
        """No message that AutoGen knows."""

        content = 42

    client = scripted("fine")
    with instrument(client, tracer_provider=exported.provider, content=True):
        odd: Any = [OddMessage()]
        result = await client.create(odd, extra_create_args={"stop": 7})
    assert result.content == "fine"
    assert exported.tree() == ["chat"]
    said = [message for message in caplog.messages if message.startswith("the telemetry")]
    assert said == ["the telemetry failed in _add_request", "the telemetry failed in _note_input"]


async def test_the_variable_of_opentelemetry_switches_content_on(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, wanted in [("true", True), ("SPAN_ONLY", True), ("false", False), ("", False), ("no_content", False)]:
        with case(value, wanted), monkeypatch.context() as patch:
            exported.exporter.clear()
            patch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
            client = scripted("42")
            with instrument(client, tracer_provider=exported.provider):
                await client.create(QUESTION)
            assert ("gen_ai.input.messages" in attributes(exported.one("chat"))) is wanted


async def test_instrumentations_for_two_providers_can_end_in_any_order(
    exported: Exported,
) -> None:
    def names(exporter: InMemorySpanExporter) -> list[str]:
        found = [span.name for span in exporter.get_finished_spans()]
        exporter.clear()
        return found

    other, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(other))

    client = scripted("1", "2", "3")
    first = instrument(client, tracer_provider=exported.provider)
    second = instrument(client, tracer_provider=provider)
    await client.create(QUESTION)
    assert (names(exported.exporter), names(other)) == (["chat"], ["chat"])
    first.uninstrument()
    await client.create(QUESTION)
    assert (names(exported.exporter), names(other)) == ([], ["chat"])
    second.uninstrument()
    await client.create(QUESTION)
    assert (names(exported.exporter), names(other)) == ([], [])


def test_object_that_is_no_agent_is_refused() -> None:
    for part in [None, "agent", ChatCompletionClient, print]:
        with (
            case(part),
            pytest.raises(TypeError, match="can't be instrumented: give agents, teams, executors, sandboxes"),
        ):
            instrument(part)


def test_nothing_to_instrument_is_refused() -> None:
    with pytest.raises(TypeError, match="needs at least one agent or team"):
        instrument()
