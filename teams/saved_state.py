"""The saved state of a team, in the form of AutoGen's teams; loaded completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from autogen_agentchat.messages import BaseChatMessage, MessageFactory
from autogen_agentchat.state import BaseGroupChatManagerState, ChatAgentContainerState, TeamState
from pydantic import ValidationError

from autogen_codeact.agents.config import problems
from autogen_codeact.agents.images import with_encoded_images
from autogen_codeact.agents.text import shorten
from autogen_codeact.teams.run import Message, SavedRun
from autogen_codeact.teams.speakers import P, Speakers
from autogen_codeact.teams.undo import Undo, snapshot

MAX_REASON = 300
_WRONG = (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError)
"""What components raise over a state that is not theirs."""


@dataclass
class Memory(Generic[P]):
    """The state of a team between two turns; `unread` are the messages that each participant has not been given yet."""

    position: P
    unread: dict[str, list[BaseChatMessage]]
    thread: list[Message]
    turn: int = 0

    def tell(self, messages: Sequence[BaseChatMessage], but: str | None = None) -> None:
        """Keep messages for all but their speaker."""
        for name, unread in self.unread.items():
            if name != but:
                unread.extend(messages)

    def last_batches(self, lengths: Sequence[int]) -> list[list[Message]]:
        """Return the last messages of the thread, in batches of these lengths."""
        rest = iter(self.thread[len(self.thread) - sum(lengths) :])
        return [list(islice(rest, length)) for length in lengths]

    def dump(self, speakers: Speakers[P], states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state of the team with those of its participants."""
        dumped: dict[str, Any] = {
            name: ChatAgentContainerState(
                agent_state=states[name], message_buffer=[message.dump() for message in unread]
            ).model_dump()
            for name, unread in self.unread.items()
        }
        dumped[speakers.manager_name] = {
            **self.position.model_dump(),
            "message_thread": [message.dump() for message in self.thread],
            "current_turn": self.turn,
        }
        return TeamState(agent_states=dumped).model_dump()


def read_state(
    state: Any, names: Sequence[str], speakers: Speakers[P], known: MessageFactory
) -> tuple[Memory[P], dict[str, Mapping[str, Any]], SavedRun, list[Message]]:
    try:
        state = with_encoded_images(state)
        states = TeamState.model_validate(state).agent_states
        if missing := [name for name in (*names, speakers.manager_name) if name not in states]:
            raise ValueError(f"it is of another team, without {', '.join(missing)}")
        containers = {name: ChatAgentContainerState.model_validate(states[name]) for name in names}
        unread = {
            name: [_chat(known.create(message)) for message in container.message_buffer]
            for name, container in containers.items()
        }
        manager = BaseGroupChatManagerState.model_validate(states[speakers.manager_name])
        if manager.current_turn < 0:
            raise ValueError("current_turn is below 0")
        position = speakers.position.model_validate(states[speakers.manager_name])
        speakers.check_position(position, names)
        thread = [known.create(message) for message in manager.message_thread]
        run = SavedRun.model_validate(state.get("run") or {})
        if sum(run.batches) > len(thread) or min(run.batches, default=0) < 0:
            raise ValueError("batches has more messages than the thread")
        by_id = {message.id: message for message in thread}
        yielded = [by_id[each] if isinstance(each, str) else known.create(each) for each in run.messages]
    except _WRONG as error:
        raise ValueError(f"The state can't be loaded: {_reason(error)}") from None
    found = {name: container.agent_state for name, container in containers.items()}
    return Memory(position, unread, thread, manager.current_turn), found, run, yielded


def _chat(message: Message) -> BaseChatMessage:
    if not isinstance(message, BaseChatMessage):
        raise TypeError(f"A {type(message).__name__} is not a chat message.")
    return message


async def set_states(undo: Undo, participants: Sequence[Any], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Load the states of the participants; if one can't be loaded, restore those loaded before."""
    done: list[tuple[str, Mapping[str, Any] | None]] = []
    for participant in participants:
        name = participant.name
        before = await snapshot(participant)
        try:
            await undo.set_state(name, states[name])
        except BaseException as error:
            for other, old in done:
                if old is not None:
                    await undo.set_state(other, old)
            if not isinstance(error, _WRONG):
                raise
            raise ValueError(f"The state can't be loaded: agent_states.{name}: {_reason(error)}") from None
        done.append((name, before))


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return shorten(problems(error), MAX_REASON)
    if isinstance(error, KeyError):
        return f"there is no {shorten(str(error), MAX_REASON)}"
    return shorten(str(error) or type(error).__name__, MAX_REASON)
