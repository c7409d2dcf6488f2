"""A team's configuration, and loading its parts so that an error names the place and the class."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.base import ChatAgent, TerminationCondition
from autogen_agentchat.base import Team as BaseTeam
from autogen_core import ComponentLoader, ComponentModel
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.teams.budget import Budget
from autogen_codeact.teams.speakers import Speakers


class TeamConfig(BaseModel):
    """The configuration of a `Team`.

    Every default is what an absent value means, since AutoGen leaves None out when it dumps.
    """

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    description: str | None = None
    participants: list[ComponentModel]
    termination_condition: ComponentModel | None = None
    max_turns: int | None = Field(default=None, ge=1)
    emit_team_events: bool = False
    begin_with_first: bool = False
    speakers: ComponentModel | None = None
    budget: Budget | None = None


def load_participants(models: list[ComponentModel]) -> list[ChatAgent | BaseTeam]:
    """Load the participants of a team."""
    loaded: list[ChatAgent | BaseTeam] = []
    for index, model in enumerate(models):
        part = _load(model, f"participants[{index}]")
        if not isinstance(part, ChatAgent | BaseTeam):
            raise ValueError(f"participants[{index}]: {model.provider} is neither an agent nor a team.")  # noqa: TRY004 (a wrong value in a config)
        loaded.append(part)
    return loaded


def load_condition(model: ComponentModel | None) -> TerminationCondition | None:
    """Load a team's termination condition."""
    if model is None:
        return None
    condition = _load(model, "termination_condition")
    if not isinstance(condition, TerminationCondition):
        raise ValueError(f"termination_condition: {model.provider} is not a termination condition.")  # noqa: TRY004 (as above)
    return condition


def load_speakers(model: ComponentModel | None) -> Speakers[Any] | None:
    """Load a team's speaker policy."""
    if model is None:
        return None
    speakers = _load(model, "speakers")
    if not isinstance(speakers, Speakers):
        raise ValueError(f"speakers: {model.provider} is not a speaker policy.")  # noqa: TRY004 (as above)
    return speakers


def _load(model: ComponentModel, place: str) -> object:
    try:
        return ComponentLoader.load_component(model, expected=object)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{place}: {model.provider} can't be loaded: {reason}") from error
