"""One at a time, or so many, in the order of asking, whatever event loop or thread asks."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future


class Turns:
    """A lock for coroutines; an `asyncio.Lock` belongs to one event loop, and executors do not.

    Args:
        places: How many may be inside at the same time. Default 1.
    """

    def __init__(self, places: int = 1) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            # It may have been given the turn before it was told that nobody waits any more.
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1
