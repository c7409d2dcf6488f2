"""A semaphore for coroutines of any event loop and thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future


class CrossLoopSemaphore:
    """A semaphore that is fair. An `asyncio.Semaphore` belongs to one event loop, and executors do not.

    Args:
        value: How many may hold it at the same time. Default 1, which makes it a lock.
    """

    def __init__(self, value: int = 1) -> None:
        self._lock = threading.Lock()
        self._free = value
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            acquired: Future[None] = Future()
            self._waiting.append(acquired)
        try:
            await asyncio.wrap_future(acquired)
        except asyncio.CancelledError:
            # A release may have come before the cancellation.
            if acquired.done() and not acquired.cancelled():
                self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        with self._lock:
            while self._waiting:
                waiting = self._waiting.popleft()
                if waiting.set_running_or_notify_cancel():
                    waiting.set_result(None)
                    return
            self._free += 1
