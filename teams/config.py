"""A team's configuration, and loading its parts so that an error names the place and the class."""

from __future__ import annotations

from typing import Any

from autogen_core import ComponentLoader, ComponentModel
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.agents.budget import Budget


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


def load_part(model: ComponentModel | None, place: str, kinds: tuple[type, ...], otherwise: str) -> Any:
    """Load a part of a team, if there is one; the error names its place and says what it is otherwise."""
    if model is None:
        return None
    try:
        part: object = ComponentLoader.load_component(model, expected=object)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{place}: {model.provider} can't be loaded: {reason}") from error
    if not isinstance(part, kinds):
        raise ValueError(f"{place}: {model.provider} is {otherwise}.")  # noqa: TRY004 (a wrong value in a config)
    return part
