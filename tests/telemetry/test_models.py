"""`chat` spans of AutoGen's model clients."""

import json
from typing import Any, cast

import pytest
from autogen_agentchat.agents import AssistantAgent
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
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from PIL import Image as PILImage

from autogen_codeact import telemetry
from autogen_codeact.telemetry import Content, SpanObserver, Spans, TracedModel, instrument
from codeact_sandbox.types.observers import BlockFinished, BlockId, BlockStarted, CallFinished, CallIntent
from codeact_sandbox.types.result import ErrorInfo, Result, ToolCall
from tests.agents.support import scripted
from tests.openai_server import OpenAIServer, Reply

from .trees import Exported, attributes

QUESTION = [UserMessage(content="What?", source="user")]
WIRE = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "scripted",
}


def traced(client: ChatCompletionClient, content: Content | None = None) -> TracedModel:
    return TracedModel(client, Spans(None, content))


async def test_span_of_a_call_over_http(exported: Exported) -> None:
    async with OpenAIServer([Reply("42", prompt_tokens=7, completion_tokens=3)]) as server:
        client = traced(server.client(temperature=0.5, max_tokens=10, seed=1))
        await client.create(QUESTION, extra_create_args={"temperature": 0.25})
    span = exported.one("chat scripted")
    assert span.kind == SpanKind.CLIENT
    assert attributes(span) == {
        **WIRE,
        "gen_ai.request.stream": False,
        "gen_ai.request.temperature": 0.25,
        "gen_ai.request.max_tokens": 10,
        "gen_ai.request.seed": 1,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }


async def test_span_of_a_stream_over_http(exported: Exported) -> None:
    async with OpenAIServer([Reply("four two", finish_reason="length")]) as server:
        client = traced(server.client())
        current = [trace.get_current_span() async for _ in client.create_stream(QUESTION, include_usage=True)]
    assert set(current) == {trace.INVALID_SPAN}, "the reader of a stream is not inside its span"
    span = exported.one("chat scripted")
    assert attributes(span) == {
        **WIRE,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_span_of_a_refused_call(exported: Exported, stream: bool) -> None:
    async with OpenAIServer([Reply("the key sk-1 is wrong", status=400)]) as server:
        client = traced(server.client())
        with pytest.raises(Exception, match="sk-1"):
            _ = [item async for item in client.create_stream(QUESTION)] if stream else await client.create(QUESTION)
    span = exported.one("chat scripted")
    assert attributes(span)["error.type"] == "BadRequestError"
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())


async def test_all_kinds_of_messages_as_content(exported: Exported) -> None:
    call = FunctionCall(id="1", name="look", arguments='{"at": "it"}')
    usage = RequestUsage(prompt_tokens=1, completion_tokens=2)
    result = CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False, thought="Hm.")
    client = traced(scripted(result, vision=True), Content(None))
    image = Image(PILImage.new("RGB", (2, 2)))
    answer = FunctionExecutionResult(content="seen", name="look", call_id="1", is_error=False)
    messages: Any = [
        SystemMessage(content="Be kind."),
        UserMessage(content=["What is this?", image], source="user"),
        AssistantMessage(content=[call], source="actor", thought="So."),
        FunctionExecutionResultMessage(content=[answer]),
        AssistantMessage(content="It.", source="actor"),
    ]
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


async def test_long_content_keeps_the_last_messages(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MAX_CHARS", 250)
    client = traced(scripted("x" * 1000), Content(None))
    messages = [UserMessage(content=f"{number}" * 60, source="user") for number in range(3)]
    await client.create(messages)
    written = attributes(exported.one("chat"))
    texts = [each["parts"][0]["content"] for each in json.loads(written["gen_ai.input.messages"])]
    assert texts == ["1" * 60, "2" * 60]
    assert len(written["gen_ai.output.messages"]) < 400


async def test_content_is_withheld_if_redact_fails(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    def redact(text: str) -> str:
        raise RuntimeError("no idea")

    await traced(scripted("the secret"), Content(redact)).create(QUESTION)
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

    odd: Any = [OddMessage()]
    result = await traced(scripted("fine"), Content(None)).create(odd, extra_create_args=cast(Any, 7))
    assert result.content == "fine"
    assert exported.tree() == ["chat"]
    said = [message for message in caplog.messages if message.startswith("the telemetry")]
    assert said == ["the telemetry failed"] * 2


@pytest.mark.parametrize(
    ("value", "wanted"), [("true", True), ("SPAN_ONLY", True), ("false", False), ("", False), ("no_content", False)]
)
async def test_the_variable_of_opentelemetry_switches_content_on(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    agent = AssistantAgent("actor", scripted("42"))
    with instrument(agent):
        await agent.run(task="What?")
    assert ("gen_ai.input.messages" in attributes(exported.one("chat"))) is wanted


@pytest.mark.parametrize("part", [None, "agent", ChatCompletionClient, print])
def test_object_that_is_no_agent_is_refused(part: Any) -> None:
    with pytest.raises(TypeError, match="can't be instrumented: give agents, teams, executors or sandboxes"):
        instrument(part)


# What code in a sandbox or a model chooses

HALF = "\ud800"
LONG = HALF + "x" * 1_000_000


def encoded(span: ReadableSpan) -> bytes:
    """All texts of a span as an exporter encodes them."""
    values = [str(value) for value in (span.attributes or {}).values()]
    return "".join([span.name, span.status.description or "", *values]).encode()


def test_texts_of_hostile_code_are_cut_and_can_be_encoded(exported: Exported) -> None:
    observer = SpanObserver(Spans(None, Content(None)))
    block = BlockStarted("box", 1, LONG, f"print('{HALF}')")
    observer.block_started(block)
    arguments = {LONG: [LONG, {HALF: HALF}, 1, None, True, 1.5]}
    error = ErrorInfo(LONG, LONG)
    refused = ToolCall(LONG, arguments, "refused", None, error)
    observer.call_finished(CallFinished(CallIntent(BlockId("box", 1), 1, LONG, arguments), refused))
    intent = CallIntent(BlockId("box", 1), 2, "look", arguments)
    observer.call_started(intent)
    observer.call_finished(CallFinished(intent, ToolCall("look", arguments, "ok", {HALF: [LONG] * 1000})))
    observer.block_finished(BlockFinished(block, Result(1, LONG, outcome="error", error=error)))
    outer, first, second = exported.spans
    assert [len(span.name) for span in (outer, first, second)] == [25, 213, 17]
    assert all(len(encoded(span)) < 700_000 for span in (outer, first, second))
