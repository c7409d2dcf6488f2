"""The connections of a sandbox that travel over its stream, with flow control by credit, served in a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from codeact_sandbox.host import protocol
from codeact_sandbox.host.connection import Connection, Handler
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.host.waiting import complete
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxProtocolError

logger = logging.getLogger("codeact_sandbox")

WINDOW = 256 * 1024  # bytes that either side of a channel may send before the other side has read them
PIECE = 64 * 1024
HEAD_LIMIT = 64 * 1024  # bytes that `Channel.read_head` reads at most
IDLE_S = 300.0
HALF_CLOSED_S = 60.0
FLUSH_S = 5.0
FIRST_OF_HOST = 1 << 31  # numbers of channels that this side opens; those of the sandbox are smaller
MAX_CHANNELS = 64
STOP_TIMEOUT_S = 5.0
_OPS = ("open", "data", "credit", "end", "close")


class ChannelClosed(ConnectionError):
    """The sandbox has closed the connection, or has ended."""


class Channel:
    """One connection. All of it but `admit` belongs to the event loop's thread."""

    def __init__(self, link: Channels, ident: int, loop: asyncio.AbstractEventLoop) -> None:
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
        return self._consumed(await self._reader.readexactly(size))

    async def read_head(self) -> bytes:
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
        if not self.output_ended and not self.closed:
            self.output_ended = True
            self._link.send_message(self.ident, {"op": "end"})

    def close(self) -> None:
        self.output_ended = True
        if not self.closed:
            self._link.send_message(self.ident, {"op": "close"})


async def relay(
    channel: Channel,
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


async def from_sandbox(channel: Channel, writer: asyncio.StreamWriter) -> None:
    """Send what the sandbox sends; not the end of what breaks off, which could look like the whole."""
    while data := await channel.read():
        writer.write(data)
        await writer.drain()
    if not channel.broken and writer.can_write_eof():
        writer.write_eof()


async def to_sandbox(channel: Channel, reader: asyncio.StreamReader) -> None:
    """Send the sandbox what comes."""
    with contextlib.suppress(ChannelClosed):
        while data := await reader.read(PIECE):
            await channel.write(data)
        channel.end()


class Channels:
    _connection: Connection
    _loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self._channels: dict[int, Channel] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()

    def attach(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._loop = asyncio.new_event_loop()
        self._thread = start_thread(f"codeact-egress-{name}", self._run)
        earlier = connection.handlers.get(wire.CHANNEL)
        connection.handlers[wire.CHANNEL] = self.take if earlier is None else partial(self._take, earlier)
        connection.ended.add_done_callback(lambda _: self._hang_up())

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end_all())
        finally:
            self._loop.close()

    async def _end_all(self) -> None:
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.release()

    async def release(self) -> None:
        """Release what is left when every connection has ended."""

    def _hang_up(self) -> None:
        # Once only: a second time would stop the loop while it ends its tasks.
        if self._ending.acquire(blocking=False):
            self._later(self._loop.stop)

    def close(self) -> None:
        if self._thread is not None:
            self._hang_up()
            self._thread.join(STOP_TIMEOUT_S)

    def _take(self, earlier: Handler, ident: int, payload: bytes) -> None:
        (self.take if ident >= FIRST_OF_HOST else earlier)(ident, payload)

    def take(self, ident: int, payload: bytes) -> None:
        message, data = protocol.unpack(payload)
        op, credit = message.get("op"), message.get("bytes", 0)
        if op not in _OPS or not isinstance(credit, int) or not 0 <= credit <= WINDOW or (data and op != "data"):
            raise SandboxProtocolError(f"the sandbox sent a malformed message about a connection: {op!r}")
        channel = self._channels.get(ident)
        if op == "open":
            self.opened(ident)
        elif channel is None:
            raise SandboxProtocolError("the sandbox sent a message about a connection that it has not opened")
        elif not channel.admit(len(data)):
            raise SandboxProtocolError("the sandbox sent more on a connection than there is room for")
        else:
            if op == "close":
                del self._channels[ident]
            self._later(channel.receive, op, data, credit)

    def opened(self, ident: int) -> None:
        raise SandboxProtocolError("the sandbox opened a connection, which only the host may do")

    def _add(self, ident: int) -> Channel:
        channel = self._channels[ident] = Channel(self, ident, self._loop)
        return channel

    def serve(self, channel: Channel, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Serve a channel in a task, in the thread of the loop."""
        task = self._serving[channel.ident] = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._served(channel))
        channel.on_closed = task.cancel
        return task

    def _later(self, call: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(call, *args)

    def _served(self, channel: Channel) -> None:
        task = self._serving.pop(channel.ident)
        channel.close()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection of a sandbox was not served to its end", exc_info=task.exception())

    def send_message(self, ident: int, message: Mapping[str, Any]) -> None:
        self._connection.send(protocol.pack(wire.CHANNEL, ident, message))

    async def send_data(self, ident: int, data: bytes) -> None:
        """Send bytes after everything else; return when it is their turn."""
        turn = self._loop.create_future()
        frame = protocol.pack(wire.CHANNEL, ident, {"op": "data"}, data)
        self._connection.send_bulk(frame, lambda: self._later(complete, turn))
        await turn
