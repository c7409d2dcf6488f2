"""Loading a team's saved state, which may be invalid, completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.state import ChatAgentContainerState, TeamState
from pydantic import ValidationError

from autogen_codeact.agents.config import problems
from autogen_codeact.agents.pictures import with_encoded_images
from autogen_codeact.agents.text import shorten
from autogen_codeact.teams.participants import AgentProxy, TeamProxy

MAX_REASON = 300
_WRONG = (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError)
"""What components raise over a state that is not theirs."""


def checked_state(state: Any, names: Sequence[str]) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]:
    """Check the state of a team, and find those of its participants in it.

    Args:
        state: The team's.
        names: The participants' names.

    Returns:
        The state, its pictures not to be decoded, and those of the participants by name.

    Raises:
        ValueError: It is not the state of a team with these participants.
    """
    try:
        state = with_encoded_images(state)
        states = TeamState.model_validate(state).agent_states
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The state can't be loaded: {_reason(error)}") from None
    if missing := [name for name in names if name not in states]:
        raise ValueError(f"The state is not that of this team: it has none of {', '.join(missing)}.")
    found = {}
    for name in names:
        try:
            found[name] = ChatAgentContainerState.model_validate(states[name]).agent_state
        except ValidationError as error:
            raise ValueError(f"The state can't be loaded: agent_states.{name}: {problems(error)}") from None
    return state, found


async def load_whole(team: Team, state: Mapping[str, Any]) -> None:
    """Let AutoGen's team load its state, and explain why it can't load an invalid one.

    Raises:
        ValueError: It can't.
    """
    try:
        await team.load_state(state)
    except _WRONG as error:
        raise ValueError(f"The state can't be loaded: {_reason(error)}") from None


async def set_states(proxies: Sequence[AgentProxy | TeamProxy], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Load the states of the participants; if one can't be loaded, restore those loaded before.

    Raises:
        ValueError: One can't be loaded; the message names it.
    """
    done: list[tuple[AgentProxy | TeamProxy, Mapping[str, Any] | None]] = []
    for proxy in proxies:
        before = await proxy.snapshot()
        try:
            await proxy.set_state(states[proxy.name])
        except _WRONG as error:
            for other, old in done:
                if old is not None:
                    await other.set_state(old)
            raise ValueError(f"The state can't be loaded: agent_states.{proxy.name}: {_reason(error)}") from None
        done.append((proxy, before))


def _reason(error: Exception) -> str:
    text = problems(error) if isinstance(error, ValidationError) else str(error) or type(error).__name__
    return shorten(text, MAX_REASON)
