"""Limits that all tasks of a batch share: model calls a minute, tokens and cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

from autogen_codeact.agents.budget import Meter
from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware
from autogen_codeact.batch.errors import BatchBudgetError
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.executors.tools.adapters import run_cancellable


class RateLimit:
    """Lets at most a given number of calls begin in a minute, evenly spaced, in the order of the requests."""

    def __init__(self, per_minute: float | None) -> None:
        self._interval = 60.0 / per_minute if per_minute is not None else 0.0
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def enter(self) -> None:
        """Wait until it may begin. Whoever is cancelled meanwhile takes nobody's place."""
        if self._interval:
            async with self._turn:  # asyncio's lock is given in the order of asking
                await asyncio.sleep(max(0.0, self._next - time.monotonic()))
                self._next = time.monotonic() + self._interval


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
        self._rate_limit = RateLimit(settings.model_calls_per_minute)
        self._meter = Meter(settings.budget)
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.spent: str | None = None  # why no further call may begin, or None

    @property
    def cost(self) -> float | None:
        """What the tokens have cost; None without prices."""
        return self._meter.used.cost if self._settings.prices is not None else None

    async def enter(self) -> None:
        """Wait until a call may begin."""
        self._check()
        await self._rate_limit.enter()
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
