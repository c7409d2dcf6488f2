"""AutoGen's messages as JSON, and which of them are in a log already."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
VOLATILE = frozenset({"id", "created_at", "metadata", "models_usage"})
"""Fields that may be different when the same message is made again."""


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


def load_message(
    data: dict[str, Any], content_type: dict[str, Any] | None = None, types: Sequence[type[Message]] = ()
) -> Message:
    """Return a message that `dump_message` has dumped.

    Args:
        data: The message.
        content_type: The description of its type. The content is of a class with the same fields.
        types: Message types of your own.

    Raises:
        ValueError: It is of an unknown type, or not valid.
    """
    for each in types:
        if each.__name__ == data.get("type"):
            return each.load(data)
    if content_type is not None:
        return StructuredMessageFactory(**content_type).StructuredMessage.load(data)
    factory = MessageFactory()
    factory.register(SelectorEvent)  # AutoGen has forgotten it
    return factory.create(data)


class KnownMessages:
    """Finds out which messages are in the log already.

    Agents that work at the same time can say the same things in another order than before, so messages are compared one by
    one. What one agent says has the same order each time: a message of it that differs in its content counts as the first one.

    Args:
        agents: Names of the run's agents. Of several with the same name, only messages with the same content are known.
    """

    def __init__(self, agents: Iterable[str] = ()) -> None:
        self._alone = {name for name, count in Counter(agents).items() if count == 1}
        self._by_source: dict[str, list[bytes]] = {}

    def add(self, message: Mapping[str, Any]) -> None:
        """Add a message as it is in the log."""
        self._by_source.setdefault(str(message.get("source")), []).append(_digest(message))

    def clear(self) -> None:
        """Remove all."""
        self._by_source.clear()

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def take(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is in the log already, and remove it if so."""
        source = str(message.get("source"))
        digests = self._by_source.get(source)
        if digests is None:
            return False
        digest = _digest(message)
        if digest in digests:
            digests.remove(digest)
        elif source in self._alone:
            digests.pop(0)
        else:
            return False
        if not digests:
            del self._by_source[source]
        return True


def _digest(message: Mapping[str, Any]) -> bytes:
    lasting = {name: value for name, value in message.items() if name not in VOLATILE}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).digest()
