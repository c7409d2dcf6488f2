"""The connections of a sandbox that travel over its stream, served in a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from codeact_sandbox.egress.channel import WINDOW, Channel
from codeact_sandbox.host import protocol
from codeact_sandbox.host.connection import Connection, Handler
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.host.waiting import complete
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxProtocolError

logger = logging.getLogger("codeact_sandbox")

FIRST_OF_HOST = 1 << 31
"""Numbers of channels that this side opens; those of the sandbox are smaller."""
MAX_CHANNELS = 64
STOP_TIMEOUT_S = 5.0
_OPS = ("open", "data", "credit", "end", "close")


class Channels:
    """The channels of one sandbox that one side has opened."""

    def __init__(self) -> None:
        self._channels: dict[int, Channel] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()

    def attach(self, connection: Connection, name: str) -> None:
        """Start to serve."""
        self._connection = connection
        self._loop = asyncio.new_event_loop()
        self._thread = start_thread(f"codeact-egress-{name}", self._run)
        earlier = connection.handlers.get(wire.CHANNEL)
        connection.handlers[wire.CHANNEL] = self.take if earlier is None else partial(self._take, earlier)
        connection.ended.add_done_callback(lambda _: self._hang_up())

    def _run(self) -> None:
        assert self._loop is not None
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
        if self._loop is not None and self._ending.acquire(blocking=False):
            self._later(self._loop.stop)

    def close(self) -> None:
        """End every connection."""
        self._hang_up()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)

    def _take(self, earlier: Handler, ident: int, payload: bytes) -> None:
        (self.take if ident >= FIRST_OF_HOST else earlier)(ident, payload)

    def take(self, ident: int, payload: bytes) -> None:
        """Process a frame from the sandbox; called in the connection's thread."""
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
        """Process the sandbox's request to open a channel."""
        raise SandboxProtocolError("the sandbox opened a connection, which only the host may do")

    def _add(self, ident: int) -> Channel:
        assert self._loop is not None
        channel = self._channels[ident] = Channel(self, ident, self._loop)
        return channel

    def serve(self, channel: Channel, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Serve a channel in a task, in the thread of the loop."""
        assert self._loop is not None
        task = self._serving[channel.ident] = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._served(channel))
        channel.on_closed = task.cancel
        return task

    def _later(self, call: Any, *args: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(call, *args)

    def _served(self, channel: Channel) -> None:
        task = self._serving.pop(channel.ident)
        channel.close()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection of a sandbox was not served to its end", exc_info=task.exception())

    def send_message(self, ident: int, message: Mapping[str, Any]) -> None:
        """Send a small frame."""
        assert self._connection is not None
        self._connection.send(protocol.pack(wire.CHANNEL, ident, message))

    async def send_data(self, ident: int, data: bytes) -> None:
        """Send bytes after everything else; return when it is their turn."""
        assert self._connection is not None
        assert self._loop is not None
        turn = self._loop.create_future()
        frame = protocol.pack(wire.CHANNEL, ident, {"op": "data"}, data)
        self._connection.send_bulk(frame, lambda: self._later(complete, turn))
        await turn
