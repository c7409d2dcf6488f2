"""AutoGen's messages as JSON, and back; docs/runs.md describes every event."""

import inspect
import json
import re
from pathlib import Path

import pytest
from autogen_agentchat import messages as autogen
from autogen_agentchat.messages import (
    BaseTextChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    MemoryQueryEvent,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    SelectorEvent,
    SelectSpeakerEvent,
    StopMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
    UserInputRequestedEvent,
)
from autogen_core import FunctionCall, Image
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.memory import MemoryContent
from autogen_core.models import AssistantMessage, FunctionExecutionResult, RequestUsage, UserMessage
from PIL import Image as PILImage
from pydantic import BaseModel

from autogen_codeact.runs.events import EVENTS
from autogen_codeact.runs.messages import dump_message, load_message
from tests.cases import case


class Total(BaseModel):
    value: int
    parts: list[str]


class Own(BaseTextChatMessage):
    """A message type that AutoGen does not know."""


CALL = FunctionCall(id="1", name="search", arguments='{"q": 1}')
DONE = FunctionExecutionResult(content="found", name="search", call_id="1", is_error=False)
CONTEXT = [UserMessage(content="x", source="u"), AssistantMessage(content="y", source="a")]
EVERY_TYPE = [
    TextMessage(content="hello", source="a", models_usage=RequestUsage(1, 2), metadata={"step": "1"}),
    MultiModalMessage(content=["see", Image(PILImage.new("RGB", (2, 2)))], source="a"),
    StopMessage(content="stop", source="a"),
    ToolCallSummaryMessage(content="found", source="a", tool_calls=[CALL], results=[DONE]),
    HandoffMessage(content="over", source="a", target="b", context=CONTEXT),
    StructuredMessage[Total](content=Total(value=3, parts=["x"]), source="a", format_string="{value}"),
    ToolCallRequestEvent(content=[CALL], source="a"),
    ToolCallExecutionEvent(content=[DONE], source="a"),
    MemoryQueryEvent(content=[MemoryContent(content="x", mime_type="text/plain")], source="a"),
    UserInputRequestedEvent(request_id="1", source="a"),
    ModelClientStreamingChunkEvent(content="pie", source="a", metadata={"chunk_of": "execution"}, full_message_id="7"),
    ThoughtEvent(content="hm", source="a"),
    SelectSpeakerEvent(content=["b"], source="a"),
    SelectorEvent(content="b", source="a"),
    CodeGenerationEvent(retry_attempt=1, content="c", code_blocks=[CodeBlock(code="1", language="python")], source="a"),
    CodeExecutionEvent(retry_attempt=1, result=CodeResult(1, "x"), source="a"),
]


def test_the_list_has_every_type_of_autogen():
    concrete = {
        name
        for name, kind in vars(autogen).items()
        if inspect.isclass(kind)
        and issubclass(kind, autogen.BaseChatMessage | autogen.BaseAgentEvent)
        and kind.__module__ == autogen.__name__
        and not name.startswith("Base")
        and "[" not in name
    }
    assert {type(message).__name__.partition("[")[0] for message in EVERY_TYPE} == concrete


def test_every_message_type_round_trips():
    for message in EVERY_TYPE:
        with case(message):
            dumped, content_type = json.loads(json.dumps(dump_message(message)))
            again = load_message(dumped, content_type)
            assert again.model_dump(mode="json") == message.model_dump(mode="json")
            assert type(again).__name__ == type(message).__name__
            assert again.created_at == message.created_at
            if not isinstance(message, CodeExecutionEvent):  # AutoGen's has no equality
                assert again.to_text() == message.to_text()


def test_custom_message_types_are_passed_by_the_caller():
    message = Own(content="mine", source="a")
    dumped, content_type = dump_message(message)
    assert load_message(dumped, content_type, [Own]) == message
    with pytest.raises(ValueError, match="Unknown message type: Own"):
        load_message(dumped)


def test_the_page_names_every_event_and_the_schema_describes_them():
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8").partition("## The events")[2]
    schema = EVENTS.json_schema()
    named = re.findall(r"`(\w+)`", page.partition("The events are ")[2].partition(";")[0])
    assert sorted(named) == sorted(schema["discriminator"]["mapping"])
    events = [schema["$defs"][each.rpartition("/")[2]] for each in schema["discriminator"]["mapping"].values()]
    assert [each["title"] for each in events if not each.get("description")] == []
