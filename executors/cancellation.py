"""Cancelling the running task with AutoGen's `CancellationToken`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autogen_core import CancellationToken


@contextmanager
def cancel_scope(token: CancellationToken) -> Iterator[None]:
    """Cancel the code inside when a token is cancelled; afterwards the task itself counts as not cancelled.

    Args:
        token: The token; any thread may cancel it.
    """
    # A token keeps its callbacks for as long as it lives, so no task is kept after the end of the scope.
    task: asyncio.Task[Any] | None = asyncio.current_task()
    requested = cancelled = False

    def request() -> None:
        nonlocal requested
        requested, inside = True, task
        # Only scheduled: a cancellation must not come while the task leaves the scope.
        if inside is not None and not inside.get_loop().is_closed():
            inside.get_loop().call_soon_threadsafe(cancel)

    def cancel() -> None:
        nonlocal cancelled
        if task is not None:
            cancelled = True
            task.cancel()

    token.add_callback(request)
    if requested:
        task = None
        raise asyncio.CancelledError
    try:
        yield
    finally:
        left, task = task, None
        if cancelled and left is not None:
            left.uncancel()
