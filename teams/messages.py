"""The messages that a team knows, and those of a task."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    MessageFactory,
    StructuredMessage,
    TextMessage,
)

Message = BaseAgentEvent | BaseChatMessage
Task = str | BaseChatMessage | Sequence[BaseChatMessage] | None


def task_messages(task: Task, known: MessageFactory) -> list[BaseChatMessage]:
    """Return the messages of a task; none if there is no task."""
    if task is None:
        return []
    if isinstance(task, str):
        if not task.strip():
            raise ValueError("The task is empty: say what to do, or leave it out to go on with what was said before.")
        return [TextMessage(content=task, source="user")]
    if isinstance(task, BaseChatMessage):
        task = [task]
    if not isinstance(task, Sequence) or not all(isinstance(message, BaseChatMessage) for message in task):
        raise ValueError(f"A task is a text, a chat message or a list of chat messages, not {type(task).__name__}.")
    messages: list[BaseChatMessage] = [*task]
    if not messages:
        raise ValueError("The task is an empty list: leave it out to go on with what was said before.")
    for message in messages:
        if not known.is_registered(type(message)):
            raise unknown_type("The task has", message)
    return messages


def unknown_type(who: str, message: Message) -> ValueError:
    """Return the error over a message that the team could save but not load."""
    return ValueError(
        f"{who} a {type(message).__name__}, which the team doesn't know. "
        "Name the type in custom_message_types when you make the team."
    )


def message_types(
    participants: Sequence[ChatAgent | BaseTeam], custom: Sequence[type[Message]]
) -> tuple[MessageFactory, list[type[Message]]]:
    """Return every message type that a team knows, and those among them that AutoGen does not."""
    types = list(custom)
    for participant in participants:
        if isinstance(participant, ChatAgent):
            types += [t for t in participant.produced_message_types if issubclass(t, StructuredMessage)]
        else:
            types += getattr(participant, "_new_types", [])  # of a nested `Team`
    known, new = MessageFactory(), []
    for message_type in types:
        if not known.is_registered(message_type):
            known.register(message_type)
            new.append(message_type)
    return known, new
