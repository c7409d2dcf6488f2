"""Writing to a terminal without holding up an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from concurrent.futures import Future

from autogen_codeact.sandbox.host.threads import start_thread


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
        start_thread("codeact-question", self._work)
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
