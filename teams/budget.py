"""The budget of a run of a team."""

from __future__ import annotations

import math
import time

from autogen_core.models import RequestUsage
from pydantic import BaseModel, ConfigDict, Field

from codeact_sandbox.types.formatting import format_count


class Budget(BaseModel):
    """What one run of a team may use, nested teams included.

    When it is used up, the run ends in mid-turn: its result has the messages so far, and a stop reason that names the budget.
    The interrupted turn has not happened, so that another run takes it again.

    Args:
        max_tokens: Tokens of prompts and completions together, as the models report them. Default: no limit.
        max_seconds: Seconds. Default: no limit.
        max_turns: Answers of agents. Default: no limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_tokens: int | None = Field(default=None, ge=1)
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_turns: int | None = Field(default=None, ge=1)


class Used(BaseModel):
    """The tokens, turns and seconds that a run has used.

    Args:
        tokens: Tokens of prompts and completions.
        turns: Answers of agents.
        seconds: Seconds, on the monotonic clock.
    """

    tokens: int = Field(default=0, ge=0)
    turns: int = Field(default=0, ge=0)
    seconds: float = Field(default=0, ge=0, allow_inf_nan=False)


class Meter:
    """Measures what a run uses."""

    def __init__(self, budget: Budget | None, used: Used, outer: Meter | None) -> None:
        self._budget = budget or Budget()
        self._used = used
        self._outer = outer
        self._began = time.monotonic()

    @property
    def used(self) -> Used:
        """What has been used up to now."""
        return self._used.model_copy(update={"seconds": self._used.seconds + time.monotonic() - self._began})

    @property
    def seconds_left(self) -> float:
        """Seconds until this budget or that of an outer run is used up; infinite without a limit."""
        most = self._budget.max_seconds
        left = math.inf if most is None else max(0.0, most - self.used.seconds)
        return left if self._outer is None else min(left, self._outer.seconds_left)

    def add(self, usage: RequestUsage | None = None, turns: int = 0) -> None:
        """Count what was used, here and in the outer runs."""
        if usage is not None:
            self._used.tokens += usage.prompt_tokens + usage.completion_tokens
        self._used.turns += turns
        if self._outer is not None:
            self._outer.add(usage, turns)

    def spent(self) -> str | None:
        """Return which budget, this or that of an outer run, is used up, or None."""
        budget, used = self._budget, self.used
        if budget.max_tokens is not None and used.tokens >= budget.max_tokens:
            return f"The budget of {format_count(budget.max_tokens, 'token')} is used up ({used.tokens:,})."
        if budget.max_turns is not None and used.turns >= budget.max_turns:
            return f"The budget of {format_count(budget.max_turns, 'turn')} is used up."
        if budget.max_seconds is not None and used.seconds >= budget.max_seconds:
            return f"The budget of {budget.max_seconds:g} s is used up."
        return self._outer.spent() if self._outer is not None else None
