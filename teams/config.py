"""A team's configuration."""

from __future__ import annotations

from autogen_core import ComponentModel
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
