"""Ending things that must be ended, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Await something to its end, also if the caller is cancelled meanwhile; it has to have deadlines of its own.

    Raises:
        asyncio.CancelledError: The caller was cancelled meanwhile.
        Exception: What it raised.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
