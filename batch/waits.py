"""Counts what the attempts of a batch wait for, for displays."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SANDBOX, MODEL_CALLS, TASKS, BACK_OFF = "a sandbox", "model calls a minute", "tasks a minute", "back-off"
SHOWN_AFTER_S = 2.0
"""Seconds after which somebody who waits is counted: sandboxes are started for each task."""


class WaitCounter:
    """Counts the present waits, by reason.

    Args:
        on_change: Called with all that limits make attempts wait for, or None, when that changes. Default: nothing.
    """

    def __init__(self, on_change: Callable[[str | None], None] = lambda reason: None) -> None:
        self._on_change = on_change
        self._since: dict[object, tuple[str, float]] = {}

    @contextmanager
    def on(self, reason: str) -> Iterator[None]:
        """Count the caller as waiting within this block.

        Args:
            reason: For what.
        """
        key = object()
        before = self._limits()
        self._since[key] = (reason, time.monotonic())
        self._notify_if_changed(before)
        try:
            yield
        finally:
            before = self._limits()
            del self._since[key]
            self._notify_if_changed(before)

    def counts(self) -> dict[str, int]:
        """Return how many have waited for some time, by what for; any thread may call it."""
        latest = time.monotonic() - SHOWN_AFTER_S
        return dict(Counter(reason for reason, since in list(self._since.values()) if since <= latest))

    def _limits(self) -> list[str]:
        return list(dict.fromkeys(reason for reason, _ in self._since.values() if reason != SANDBOX))

    def _notify_if_changed(self, before: list[str]) -> None:
        if (now := self._limits()) != before:
            self._on_change(", ".join(now) or None)
