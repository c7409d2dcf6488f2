"""AutoGen's messages as JSON, and back."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    MessageFactory,
    SelectorEvent,
    StructuredMessage,
    StructuredMessageFactory,
)

Message = BaseAgentEvent | BaseChatMessage


def dump_message(message: Message) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a message as JSON values and, if it is a `StructuredMessage`, a description of its type."""
    dumped = {"type": type(message).__name__, **message.dump()}
    if not isinstance(message, StructuredMessage):
        return dumped, None
    content = type(message.content)
    content_type = {
        "json_schema": content.model_json_schema(),
        "format_string": message.format_string,
        "content_model_name": content.__name__,
    }
    return dumped, content_type


def load_message(data: dict[str, Any], content_type: dict[str, Any] | None = None) -> Message:
    """Return a message that `dump_message` has dumped.

    Args:
        data: The message.
        content_type: The description of its type. The content is of a class with the same fields.

    Raises:
        ValueError: It is of an unknown type, or not valid.
    """
    if content_type is not None:
        return StructuredMessageFactory(**content_type).StructuredMessage.load(data)
    factory = MessageFactory()
    factory.register(SelectorEvent)  # AutoGen has forgotten it
    return factory.create(data)
