"""What tasks of several event loops share without holding a thread while they wait: turns, and a stream that may block."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager


class Turns:
    """Lets one task at a time do something, in whichever event loop it runs; the others wait in their order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held while something waits
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for the turn, and have it for the time of the body."""
        await self._take()
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            with self._lock:
                waits = turn in self._waiting
                if waits:
                    self._waiting.remove(turn)
            if not waits:  # it was this task's turn already
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(_begin, turn)
                except RuntimeError:  # its loop has been closed
                    continue
                return
            self._taken = False


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Writer:
    """Writes to standard error, in order. A stopped terminal blocks that, so a thread does it, and ends when all is written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: deque[tuple[str, Future[None]]] = deque()
        self._running = False

    async def write(self, text: str) -> None:
        """Write, and wait until it is written.

        Raises:
            Exception: What the stream raised.
        """
        if text:
            await asyncio.wrap_future(self.start(text))

    def start(self, text: str) -> Future[None]:
        """Write soon; what is cancelled before that is not written."""
        written: Future[None] = Future()
        with self._lock:
            self._texts.append((text, written))
            if self._running:
                return written
            self._running = True
        threading.Thread(target=self._work, name="codeact-question", daemon=True).start()
        return written

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._texts:
                    self._running = False
                    return
                text, written = self._texts.popleft()
            if not written.set_running_or_notify_cancel():
                continue
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except Exception as error:  # noqa: BLE001 - passed to who waits
                written.set_exception(error)
            else:
                written.set_result(None)
