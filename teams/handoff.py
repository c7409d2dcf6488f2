"""Participants name who speaks next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import Component
from pydantic import BaseModel, ConfigDict

from autogen_codeact.teams.errors import HandoffTargetError, SpeakerError
from autogen_codeact.teams.messages import Message
from autogen_codeact.teams.speakers import Conversation, Position, Speakers


class HandoffPosition(Position):
    """Who speaks until somebody hands over; the field of AutoGen's `SwarmManagerState`."""

    type: str = "SwarmManagerState"
    current_speaker: str


class HandoffConfig(BaseModel):
    """The configuration of a `Handoff`."""

    model_config = ConfigDict(extra="forbid")


class Handoff(Speakers[HandoffPosition], Component[HandoffConfig]):
    """Whoever speaks goes on until a `HandoffMessage` names somebody else; the first participant begins.

    To hand over to a user, make a `UserProxyAgent` of that name a participant, or end the run with
    `HandoffTermination(target="…")` and give the user's answer as the next task, in a `HandoffMessage` to a participant.
    """

    component_config_schema = HandoffConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.Handoff"
    position = HandoffPosition
    manager_name = "SwarmGroupChatManager"

    def check(self, participants: Sequence[ChatAgent | BaseTeam], *, bounded: bool) -> None:
        """Refuse a team whose first participant would speak for ever."""
        first = participants[0]
        if isinstance(first, ChatAgent) and HandoffMessage not in first.produced_message_types:
            raise SpeakerError(
                f"{first.name!r} begins and can't hand over: give it handoffs=[…], or put another participant first."
            )

    def check_position(self, position: HandoffPosition, names: Sequence[str]) -> None:
        """Refuse a speaker who is not a participant."""
        if position.current_speaker not in names:
            raise ValueError("current_speaker is not a participant.")

    def check_task(self, conversation: Conversation, task: Sequence[BaseChatMessage]) -> None:
        """Refuse a task after which the last handoff names no participant."""
        names = conversation.names
        for message in task:
            if isinstance(message, HandoffMessage) and message.target not in names:
                raise HandoffTargetError(message.source, message.target, names)
        _last_target([*conversation.thread, *task], names)

    def start(self, names: Sequence[str]) -> HandoffPosition:
        """Return the position of the first participant."""
        return HandoffPosition(current_speaker=names[0])

    async def next(self, position: HandoffPosition, conversation: Conversation) -> list[str]:
        """Return the target of the last handoff, or whoever spoke before."""
        position.current_speaker = _last_target(conversation.thread, conversation.names) or position.current_speaker
        return [position.current_speaker]

    def _to_config(self) -> HandoffConfig:
        return HandoffConfig()

    @classmethod
    def _from_config(cls, config: HandoffConfig) -> Self:
        return cls()


def _last_target(thread: Sequence[Message], names: list[str]) -> str | None:
    for message in reversed(thread):
        if not isinstance(message, HandoffMessage):
            continue
        if message.target in names:
            return message.target
        if message.source in names:
            raise HandoffTargetError(message.source, message.target, names)
        # else it is between the participants of a nested team
    return None
