"""One connection of the sandbox as the host sees it: bytes in both directions, with flow control by credit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

WINDOW = 256 * 1024  # bytes that either side of a channel may send before the other side has read them
PIECE = 64 * 1024
HEAD_LIMIT = 64 * 1024  # bytes that `Channel.read_head` reads at most
IDLE_S = 300.0
HALF_CLOSED_S = 60.0
FLUSH_S = 5.0


class ChannelClosed(ConnectionError):
    """The sandbox has closed the connection, or has ended."""


class Link(Protocol):
    """Sends the frames of all channels to the sandbox."""

    def send_message(self, ident: int, message: Mapping[str, Any]) -> None:
        """Send a small frame."""
        ...

    async def send_data(self, ident: int, data: bytes) -> None:
        """Send bytes after everything that has priority over them; return when they are being sent."""
        ...


class Movement(Protocol):
    """What `relay` watches of a connection: whether the sandbox has closed it, and when something was sent or received."""

    @property
    def closed(self) -> bool:
        """Whether the sandbox has closed it."""
        ...

    @property
    def last_activity(self) -> float:
        """When something was sent or received, in monotonic seconds."""
        ...


class Channel:
    """One connection. All of it but `admit` belongs to the event loop's thread."""

    def __init__(self, link: Link, ident: int, loop: asyncio.AbstractEventLoop) -> None:
        self.ident = ident
        self.sent = self.received = 0  # bytes that the sandbox has sent and received
        self.closed = self.broken = False  # whether it has ended in the sandbox; without an end of its data
        self.last_activity = time.monotonic()
        self.on_closed: Callable[[], object] | None = None
        self._link = link
        self._reader = asyncio.StreamReader(limit=HEAD_LIMIT, loop=loop)
        self._input_ended = self.output_ended = False
        self._input_room = WINDOW
        self._room_lock = threading.Lock()
        self._unacknowledged = 0
        self._credit = WINDOW
        self._credit_changed = asyncio.Event()

    def admit(self, size: int) -> bool:
        """Count bytes that have arrived; return whether the sandbox may send them. Called in the connection's thread."""
        with self._room_lock:
            self._input_room -= size
            return self._input_room >= 0

    def receive(self, op: str, data: bytes, credit: int) -> None:
        """Process a frame from the sandbox."""
        self.last_activity = time.monotonic()
        if op == "credit":
            self._credit += credit
            self._credit_changed.set()
            return
        if data and not self._input_ended:
            self._reader.feed_data(data)
        if op in ("end", "close") and not self._input_ended:
            self._input_ended, self.broken = True, op == "close"
            self._reader.feed_eof()
        if op == "close":
            self.closed = True
            self._credit_changed.set()
            if self.on_closed is not None:
                self.on_closed()

    async def read(self) -> bytes:
        """Return what has arrived, at least one byte; empty at the end of the sandbox's data."""
        return self._consumed(await self._reader.read(PIECE))

    async def read_exactly(self, size: int) -> bytes:
        """Return that many bytes."""
        return self._consumed(await self._reader.readexactly(size))

    async def read_head(self) -> bytes:
        """Return the bytes up to and including the first empty line."""
        return self._consumed(await self._reader.readuntil(b"\r\n\r\n"))

    def _consumed(self, data: bytes) -> bytes:
        self.sent += len(data)
        self._unacknowledged += len(data)
        if self._unacknowledged >= WINDOW // 4 and not self.closed:
            with self._room_lock:
                self._input_room += self._unacknowledged
            self._link.send_message(self.ident, {"op": "credit", "bytes": self._unacknowledged})
            self._unacknowledged = 0
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the sandbox reads them."""
        view = memoryview(data)
        while view:
            while not self._credit and not self.closed:
                self._credit_changed.clear()
                await self._credit_changed.wait()
            if self.closed or self.output_ended:
                raise ChannelClosed("the sandbox has closed the connection")
            size = min(len(view), self._credit, PIECE)
            self._credit -= size
            self.received += size
            self.last_activity = time.monotonic()
            await self._link.send_data(self.ident, bytes(view[:size]))
            view = view[size:]

    def end(self) -> None:
        """Notify the sandbox that nothing more will be sent."""
        if not self.output_ended and not self.closed:
            self.output_ended = True
            self._link.send_message(self.ident, {"op": "end"})

    def close(self) -> None:
        """Close both directions; what was sent still arrives."""
        self.output_ended = True
        if not self.closed:
            self._link.send_message(self.ident, {"op": "close"})


async def relay(
    channel: Movement,
    up: Coroutine[Any, Any, None],
    down: Coroutine[Any, Any, None],
    *,
    until_down_ends: bool = False,
) -> None:
    """Run both directions of a connection until both (or `down`) have ended or nothing moves; `up` has `FLUSH_S` to finish."""
    sending, receiving = tasks = asyncio.ensure_future(up), asyncio.ensure_future(down)
    pending: set[asyncio.Future[None]] = set(tasks)
    try:
        while pending:
            answers = until_down_ends and receiving in pending  # a request was sent, and its answer is awaited
            limit_s = IDLE_S if answers or len(pending) == len(tasks) else HALF_CLOSED_S
            done, pending = await asyncio.wait(pending, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if until_down_ends and receiving in done:
                return
            if not done and time.monotonic() - channel.last_activity >= limit_s:
                return
    finally:
        try:
            if channel.closed:
                await asyncio.wait({sending}, timeout=FLUSH_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
