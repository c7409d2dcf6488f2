"""Undoes an interrupted turn in the saved state of a round robin."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autogen_agentchat.state import ChatAgentContainerState, RoundRobinManagerState, TeamState

from autogen_codeact.teams.run_control import Turn


def state_before_turn(
    state: Mapping[str, Any],
    speakers: Sequence[str],
    turn: Turn | None,
    markers: Collection[str],
    next_speaker: str | None = None,
) -> TeamState:
    """Make the state from which the next run goes on as if the interrupted turn had not begun.

    Messages from before that turn stay, and are delivered to those who have not received them.

    Args:
        state: What AutoGen's round robin saved.
        speakers: The participants' names, in their order.
        turn: The interrupted turn, whose speaker is next; None if nobody was speaking.
        markers: Ids of messages that replaced the answer of an interrupted turn.
        next_speaker: Who is next if no turn was interrupted. Default: who would have been.

    Returns:
        The new state; the old one is left as it is.
    """
    agents = dict(TeamState.model_validate(state).agent_states)
    (manager_name,) = agents.keys() - set(speakers)
    manager = RoundRobinManagerState.model_validate(agents[manager_name])
    manager.message_thread = _without(manager.message_thread, markers)
    manager.current_turn = 0
    if next_speaker is not None:
        manager.next_speaker_index = speakers.index(next_speaker)
    for name in speakers:
        container = ChatAgentContainerState.model_validate(agents[name])
        container.message_buffer = _without(container.message_buffer, markers)
        if turn is not None and turn.speaker == name:
            container.message_buffer = [message.dump() for message in turn.given]
            manager.next_speaker_index = speakers.index(name)
        agents[name] = container.model_dump()
    agents[manager_name] = manager.model_dump()
    return TeamState(agent_states=agents)


def _without(messages: Sequence[Mapping[str, Any]], markers: Collection[str]) -> list[Mapping[str, Any]]:
    return [message for message in messages if message.get("id") not in markers]
