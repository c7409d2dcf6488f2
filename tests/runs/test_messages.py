"""AutoGen's messages as JSON, and back; docs/runs.md describes every event."""

import json
import re
from pathlib import Path

import pytest
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    HandoffMessage,
    MultiModalMessage,
    SelectorEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_core import Image
from autogen_core.code_executor import CodeResult
from autogen_core.models import RequestUsage, UserMessage
from PIL import Image as PILImage
from pydantic import BaseModel

from autogen_codeact.runs.events import EVENTS
from autogen_codeact.runs.messages import dump_message, load_message


class Total(BaseModel):
    value: int
    parts: list[str]


MESSAGES = [
    TextMessage(content="hello", source="a", models_usage=RequestUsage(1, 2), metadata={"step": "1"}),
    MultiModalMessage(content=["see", Image(PILImage.new("RGB", (2, 2)))], source="a"),
    HandoffMessage(content="over", source="a", target="b", context=[UserMessage(content="x", source="u")]),
    StructuredMessage[Total](content=Total(value=3, parts=["x"]), source="a", format_string="{value}"),
    SelectorEvent(content="b", source="a"),
    CodeExecutionEvent(retry_attempt=1, result=CodeResult(1, "x"), source="a"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_round_trip(message):
    dumped, content_type = json.loads(json.dumps(dump_message(message)))
    again = load_message(dumped, content_type)
    assert again.model_dump(mode="json") == message.model_dump(mode="json")
    assert type(again).__name__ == type(message).__name__
    assert again.created_at == message.created_at


def test_the_page_names_every_event_and_the_schema_describes_them():
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8").partition("## The events")[2]
    schema = EVENTS.json_schema()
    named = re.findall(r"`(\w+)`", page.partition("The events are ")[2].partition(";")[0])
    assert sorted(named) == sorted(schema["discriminator"]["mapping"])
    events = [schema["$defs"][each.rpartition("/")[2]] for each in schema["discriminator"]["mapping"].values()]
    assert [each["title"] for each in events if not each.get("description")] == []
