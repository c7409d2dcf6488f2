"""Cancelling the running task with AutoGen's `CancellationToken`."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import CancellationToken


class CancelScope:
    """A context whose code is cancelled when a token is; afterwards the task itself counts as not cancelled.

    Args:
        token: The token; any thread may cancel it.
    """

    def __init__(self, token: CancellationToken) -> None:
        self._token = token
        # A token keeps its callbacks for as long as it lives, so no task is kept after the end of the scope.
        self._task: asyncio.Task[Any] | None = None
        self._requested = self._cancelled = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._token.add_callback(self._request)
        if self._requested:
            self._task = None
            raise asyncio.CancelledError

    def __exit__(self, *_: object) -> None:
        task, self._task = self._task, None
        if self._cancelled and task is not None:
            task.uncancel()

    def _request(self) -> None:
        self._requested, task = True, self._task
        # Only scheduled: a cancellation must not come while the task leaves the scope.
        if task is not None and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()
