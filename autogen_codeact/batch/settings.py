"""How a batch is run, and the limits that all its tasks share: model calls a minute, tokens and cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol, Self

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage
from pydantic import BaseModel, ConfigDict, Field, model_validator

from autogen_codeact.agents.budget import Budget, Meter, Prices
from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware
from autogen_codeact.batch.errors import BatchBudgetError
from autogen_codeact.executors.tools.adapters import run_cancellable


class BatchSettings(BaseModel):
    """How a batch is run.

    Args:
        concurrency: Tasks that run at the same time, each in a sandbox of its own. Default 4.
        attempts: Maximum number of attempts at a task, if they end with temporary errors. Default 3.
        backoff_s: Seconds before the second attempt; each further one waits twice as long, up to 60 s. Default 1.
        repeat: How often each task is done. Default 1.
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


class ModelGate(Protocol):
    """Limits and counts the model calls of a batch."""

    async def enter(self) -> None:
        """Wait until a call may begin."""

    def used(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of a call that has ended."""


class LocalGate:
    """A `ModelGate` for the tasks of this process; it also sums up what the batch has used."""

    def __init__(self, settings: BatchSettings, on_spent: Callable[[str], None] = lambda reason: None) -> None:
        self._settings = settings
        self._on_spent = on_spent
        self._interval = 60.0 / settings.model_calls_per_minute if settings.model_calls_per_minute else 0.0
        self._next = 0.0
        self._turn = asyncio.Lock()  # which is given in the order of asking
        self._meter = Meter(settings.budget)
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.spent: str | None = None  # why no further call may begin, or None

    @property
    def cost(self) -> float | None:
        """What the tokens have cost; None without prices."""
        return self._meter.used.cost if self._settings.prices is not None else None

    async def enter(self) -> None:
        """Wait until a call may begin: calls are evenly spaced, and a caller that is cancelled meanwhile takes no place."""
        self._check()
        if self._interval:
            async with self._turn:
                await asyncio.sleep(max(0.0, self._next - time.monotonic()))
                self._next = time.monotonic() + self._interval
            self._check()

    def used(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of a call that has ended."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self._meter.add(RequestUsage(prompt_tokens, completion_tokens))
        if (reached := self._meter.reached()) is not None:
            self.end(reached.sentence.rstrip("."))

    def end(self, reason: str) -> None:
        """Let no further call begin."""
        if self.spent is None:
            self.spent = reason
            self._on_spent(reason)

    def _check(self) -> None:
        if self.spent is not None:
            raise BatchBudgetError(self.spent)


class GatedClient(ModelMiddleware):
    """Has each call to a model wait for the gate of the batch."""

    def __init__(self, client: ChatCompletionClient, gate: ModelGate) -> None:
        super().__init__(client)
        self._gate = gate

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call."""
        token = call.options.get("cancellation_token")
        enter = self._gate.enter()
        await (run_cancellable(enter, token) if isinstance(token, CancellationToken) else enter)
        async with aclosing(call.items()) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    self._gate.used(item.usage.prompt_tokens, item.usage.completion_tokens)
                yield item
