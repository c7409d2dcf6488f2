"""How a batch is run: how much at the same time, how often, and what it may use."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from autogen_codeact.agents.budget import Budget, Prices


class BatchSettings(BaseModel):
    """How a batch is run.

    Args:
        concurrency: Tasks that run at the same time. Default 4.
        attempts: Maximum number of attempts at a task, if they end with temporary errors. Default 3.
        backoff_s: Seconds before the second attempt; each further one waits twice as long, up to 60 s. Default 1.
        repeat: How often each task is done. Default 1.
        max_sandboxes: Sandboxes that exist at the same time, those that wait for their use included. Default: as many as are
            needed for `concurrency`, and some that are ready.
        model_calls_per_minute: Model calls that begin in a minute, all tasks together. Default: no limit.
        max_tokens: Tokens that the batch may use, rows of earlier commands included. Default: no limit.
        max_cost: The same in the currency of `prices`. Default: no limit.
        max_seconds: Seconds after which the batch ends, counted from the start of the command. Default: no limit.
        prices: What the model costs. Default: not known, and rows have no cost.
        task_timeout: Seconds that one attempt may take, its checks included. Default: no limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: int = Field(default=4, ge=1)
    attempts: int = Field(default=3, ge=1)
    backoff_s: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    repeat: int = Field(default=1, ge=1)
    max_sandboxes: int | None = Field(default=None, ge=1)
    model_calls_per_minute: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    prices: Prices | None = None
    task_timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @property
    def budget(self) -> Budget:
        """What all tasks together may use; its time is watched apart."""
        return Budget(max_tokens=self.max_tokens, max_cost=self.max_cost, prices=self.prices).with_prices()

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        assert self.budget
        return self
