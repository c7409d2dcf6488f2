"""Budgets: what an agent's turn, a team's run or a batch may use, and what it has used."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, Self

from autogen_core.models import RequestUsage
from pydantic import BaseModel, ConfigDict, Field

from codeact_sandbox.types.text import format_count


class Prices(BaseModel):
    """What a model costs, in any currency.

    Args:
        prompt: For a million tokens that it reads.
        completion: For a million tokens that it writes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: float = Field(ge=0, allow_inf_nan=False)
    completion: float = Field(ge=0, allow_inf_nan=False)

    @classmethod
    def known(cls, model: str) -> Self | None:
        """Return the list prices of a model in US dollars, or None if the library `genai-prices` does not know or is missing.

        Args:
            model: Its name, such as "gpt-5-mini", also with a date at its end: "gpt-5-mini-2025-08-07".
        """
        try:
            from genai_prices import Usage, calc_price  # noqa: PLC0415 - of an extra

            price = calc_price(Usage(input_tokens=1_000, output_tokens=1_000), model_ref=model)
        except (ImportError, LookupError):
            return None
        return cls(prompt=1_000 * float(price.input_price), completion=1_000 * float(price.output_price))

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what tokens cost."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


def prices_of(models: Iterable[str | None]) -> Prices | None:
    """Return the list prices of models, or None if they are not the same one, or not known."""
    names = set(models) - {None}
    return Prices.known(str(names.pop())) if len(names) == 1 else None


NO_PRICES = (
    "max_cost needs prices: without them the cost of a call is not known. Give prices=Prices(prompt=2.5, completion=10) of a "
    "million tokens, or install the extra prices, with which Prices.known(model) knows most models"
)


class Budget(BaseModel):
    """What a turn of an agent, or a run of a team with its nested teams, may use.

    When a team's is used up, the run ends in mid-turn: its result has the messages so far, and a stop reason that names the
    budget. The interrupted turn has not happened, so that another run takes it again.

    Args:
        max_tokens: Tokens of prompts and completions together, as the models report them. Default: no limit.
        max_seconds: Seconds. Default: no limit.
        max_turns: Answers of agents, in a team. Default: no limit.
        max_steps: Messages of models. Default: no limit; 20 for a `CodeActAgent`.
        max_cost: Money, in the currency of `prices`. Default: no limit.
        prices: What the model costs. Default: for a `CodeActAgent` the list prices of its model; else not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_tokens: int | None = Field(default=None, ge=1)
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_turns: int | None = Field(default=None, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    prices: Prices | None = None

    def with_prices(self, model: str | None = None) -> Budget:
        """Return this budget with the list prices of a model, if it needs some and has none."""
        if self.max_cost is None or self.prices is not None:
            return self
        known = Prices.known(model) if model is not None else None
        if known is None:
            raise ValueError(NO_PRICES)
        return self.model_copy(update={"prices": known})


class Used(BaseModel):
    """What has been used: tokens, messages of models, answers of agents, seconds of the monotonic clock, and money."""

    tokens: int = Field(default=0, ge=0)
    turns: int = Field(default=0, ge=0)
    seconds: float = Field(default=0, ge=0, allow_inf_nan=False)
    steps: int = Field(default=0, ge=0)
    cost: float = Field(default=0, ge=0, allow_inf_nan=False)


class Limit(NamedTuple):
    """A limit that is reached: its name, such as "max_tokens", and a sentence about it."""

    name: str
    sentence: str


class Meter:
    """Measures what is used, and says which limit is reached."""

    def __init__(self, budget: Budget | None, used: Used | None = None, outer: Meter | None = None) -> None:
        self._budget = (budget or Budget()).with_prices()
        self._used = used or Used()
        self._outer = outer
        self._began = time.monotonic()

    @property
    def used(self) -> Used:
        """What has been used up to now."""
        return self._used.model_copy(update={"seconds": self._used.seconds + time.monotonic() - self._began})

    @property
    def seconds_left(self) -> float | None:
        """Seconds until this budget or that of an outer run is used up; None without a limit."""
        most = self._budget.max_seconds
        outer = self._outer.seconds_left if self._outer is not None else None
        if most is None:
            return outer
        left = max(0.0, most - self.used.seconds)
        return left if outer is None else min(left, outer)

    def add(self, usage: RequestUsage | None = None, turns: int = 0, steps: int | None = None) -> None:
        """Count what was used, here and in the outer runs; usage is that of one message of a model."""
        if usage is not None:
            prompt, completion = max(0, usage.prompt_tokens), max(0, usage.completion_tokens)  # a server says anything
            self._used.tokens += prompt + completion
            if self._budget.prices is not None:
                self._used.cost += self._budget.prices.cost(prompt, completion)
        self._used.steps += usage is not None if steps is None else steps
        self._used.turns += turns
        if self._outer is not None:
            self._outer.add(usage, turns, steps)

    def reached(self) -> Limit | None:
        """Return the limit of this budget that is reached, or None."""
        used = self.used
        amounts = {
            "max_seconds": (used.seconds, "{:g} s", ""),
            "max_cost": (used.cost, "{:g}", f" ({used.cost:.4g})"),
            "max_tokens": (used.tokens, "token", f" ({used.tokens:,})"),
            "max_steps": (used.steps, "step", ""),
            "max_turns": (used.turns, "turn", ""),
        }
        for name, (amount, unit, more) in amounts.items():
            most = getattr(self._budget, name)
            if most is not None and amount >= most:
                limit = unit.format(most) if "{" in unit else format_count(most, unit)
                return Limit(name, f"The budget of {limit} is used up{more}.")
        return None

    def spent(self) -> str | None:
        """Return a sentence about a limit that is reached, of this budget or that of an outer run; or None."""
        if (reached := self.reached()) is not None:
            return reached.sentence
        return self._outer.spent() if self._outer is not None else None
