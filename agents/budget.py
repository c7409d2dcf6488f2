"""Limits of one turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from autogen_core import CancellationToken
from autogen_core.models import RequestUsage


class DeadlineExpired(Exception):
    """A deadline has expired, and what ran was cancelled."""


class Budget:
    """Steps, tokens and seconds of one turn.

    Args:
        max_steps: Messages of the model.
        max_tokens: Tokens that the model may read and write, as its client counts them; None for no limit.
        max_seconds: Wall-clock seconds; None for no limit.
    """

    def __init__(self, max_steps: int, max_tokens: int | None, max_seconds: float | None) -> None:
        self.steps = 0
        self._max_steps = max_steps
        self._max_tokens = max_tokens
        self._until = time.monotonic() + max_seconds if max_seconds is not None else None
        self._tokens = 0

    def count(self, usage: RequestUsage) -> None:
        """Add the tokens of an answer."""
        self._tokens += usage.prompt_tokens + usage.completion_tokens

    @property
    def reached_limit(self) -> str | None:
        """Name of the limit that has been reached, such as `max_steps`, or None."""
        if self._until is not None and time.monotonic() >= self._until:
            return "max_seconds"
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            return "max_tokens"
        if self.steps >= self._max_steps:
            return "max_steps"
        return None

    @contextmanager
    def timed(self, token: CancellationToken) -> Iterator[CancellationToken]:
        """Give the body a token that is cancelled with `token`, and when `max_seconds` are over.

        Raises:
            DeadlineExpired: They were over.
        """
        if self._until is None:
            yield token
            return
        with with_deadline(token, self._until - time.monotonic()) as inner:
            yield inner


@contextmanager
def with_deadline(token: CancellationToken, seconds: float) -> Iterator[CancellationToken]:
    """Give the body a token that is cancelled with `token`, and after some seconds.

    `asyncio.timeout` in a generator would cancel its consumer, too.
    """
    inner = CancellationToken()
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        inner.cancel()

    token.add_callback(inner.cancel)
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), expire)
    me = asyncio.current_task()
    cancels_before = me.cancelling() if me else 0
    try:
        yield inner
    except asyncio.CancelledError:
        if not expired or token.is_cancelled() or (me and me.cancelling() > cancels_before):
            raise
        raise DeadlineExpired from None
    finally:
        timer.cancel()
