"""Who speaks next: the interface of speaker policies, and the round robin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import Component, ComponentBase
from autogen_core.models import RequestUsage
from pydantic import BaseModel, ConfigDict

from autogen_codeact.executors.tools.configs import OwnProvider
from autogen_codeact.teams.run import Message


class SpeakerError(ValueError):
    """The next speaker can't be determined; the message says what to change."""


class HandoffTargetError(SpeakerError):
    """Somebody handed over to a name that no participant has."""

    def __init__(self, source: str, target: str, participants: list[str]) -> None:
        super().__init__(
            f"{source!r} handed over to {target!r}, but the participants are {', '.join(participants)}. Correct the target, add "
            f"a participant of that name, or end the run there with HandoffTermination({target!r}) and give a HandoffMessage "
            "to a participant as the next task."
        )


class SelectionError(SpeakerError):
    """The model of a selector named no participant that may speak, as often as it was asked."""


class GraphError(SpeakerError):
    """A graph does not fit its team, or can't end."""


class Position(BaseModel):
    """Where a conversation is, as far as the choice of speakers depends on it; part of the team's saved state."""

    type: str
    version: str = "1.0.0"


P = TypeVar("P", bound=Position)


@dataclass(frozen=True)
class Conversation:
    """What a policy may look at."""

    participants: Sequence[ChatAgent | BaseTeam]
    thread: Sequence[Message]
    count: Callable[[RequestUsage], None]  # of model calls that the policy makes

    @property
    def names(self) -> list[str]:
        return [participant.name for participant in self.participants]


class Speakers(OwnProvider, ABC, ComponentBase[BaseModel], Generic[P]):
    """Chooses the next speakers of a team.

    A policy is configuration only. What changes during a conversation is in a `Position` that the team keeps, saves with its
    state, and puts back if a turn is interrupted.
    """

    component_type = "speakers"
    position: type[P]
    manager_name: ClassVar[str]
    """The key in a saved state, and the source of events: those of AutoGen's class, so that it can read the state."""

    def check(self, participants: Sequence[ChatAgent | BaseTeam], *, bounded: bool) -> None:
        """Refuse a team for which this policy can't work."""

    def check_position(self, position: P, names: Sequence[str]) -> None:
        """Refuse a saved position that is not of a team with these participants."""

    def check_task(self, conversation: Conversation, task: Sequence[BaseChatMessage]) -> None:
        """Refuse a task before it is part of the conversation."""

    @abstractmethod
    def start(self, names: Sequence[str]) -> P:
        """Return the position at the beginning of a conversation."""

    @abstractmethod
    async def next(self, position: P, conversation: Conversation) -> list[str]:
        """Return the names of those who speak next, at once if there are several, and change the position accordingly."""

    def turn_ended(self, position: P, speaker: str, messages: Sequence[Message]) -> None:
        """Update the position after a whole turn."""

    def complete(self, position: P, names: Sequence[str]) -> str | None:
        """Return why the conversation ends here, and go to the position of a new task; else None."""
        return None

    async def close(self) -> None:
        """Release what a policy loaded from a config holds."""

    def _to_config(self) -> Any:
        return NoOptions()

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        return cls()


async def next_names(speakers: Speakers[P], position: P, conversation: Conversation) -> list[str]:
    """Return the next speakers that a policy names, if they are participants."""
    names = await speakers.next(position, conversation)
    if not names or not set(names) <= set(conversation.names) or len(set(names)) < len(names):
        raise SpeakerError(
            f"{type(speakers).__name__} named {names} as the next speakers; the participants are "
            f"{', '.join(conversation.names)}, and each can be named once."
        )
    return names


class RoundRobinPosition(Position):
    """Who is next, as a number; the fields of AutoGen's `RoundRobinManagerState`."""

    type: str = "RoundRobinManagerState"
    next_speaker_index: int = 0


class NoOptions(BaseModel):
    """The configuration of a policy without options."""

    model_config = ConfigDict(extra="forbid")


class RoundRobin(Speakers[RoundRobinPosition], Component[NoOptions]):
    """Everybody speaks in turn, in the order of the participants."""

    component_config_schema = NoOptions
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.RoundRobin"
    position = RoundRobinPosition
    manager_name = "RoundRobinGroupChatManager"

    def check_position(self, position: RoundRobinPosition, names: Sequence[str]) -> None:
        if not 0 <= position.next_speaker_index < len(names):
            raise ValueError(f"next_speaker_index is {position.next_speaker_index}, of {len(names)} participants.")

    def start(self, names: Sequence[str]) -> RoundRobinPosition:
        return RoundRobinPosition()

    async def next(self, position: RoundRobinPosition, conversation: Conversation) -> list[str]:
        index = position.next_speaker_index
        position.next_speaker_index = (index + 1) % len(conversation.participants)
        return [conversation.names[index]]


class HandoffPosition(Position):
    """Who speaks until a handoff; the field of AutoGen's `SwarmManagerState`."""

    type: str = "SwarmManagerState"
    current_speaker: str


class Handoff(Speakers[HandoffPosition], Component[NoOptions]):
    """The speaker goes on until a `HandoffMessage` names another one; the first participant begins.

    To hand over to a user, make a `UserProxyAgent` of that name a participant, or end the run with
    `HandoffTermination(target="…")` and give the user's answer as the next task, in a `HandoffMessage` to a participant.
    """

    component_config_schema = NoOptions
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
        return HandoffPosition(current_speaker=names[0])

    async def next(self, position: HandoffPosition, conversation: Conversation) -> list[str]:
        """Return the target of the last handoff, or whoever spoke before."""
        position.current_speaker = _last_target(conversation.thread, conversation.names) or position.current_speaker
        return [position.current_speaker]


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
