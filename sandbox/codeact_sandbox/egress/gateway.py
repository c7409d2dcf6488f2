"""The gateway of a sandbox: receives its connections over the stream and serves them in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import Any

from codeact_sandbox.egress.channel import WINDOW, Channel
from codeact_sandbox.egress.connection_log import ConnectionLog, notes
from codeact_sandbox.egress.connector import Connector
from codeact_sandbox.egress.http_proxy import LocalService, serve
from codeact_sandbox.egress.secrets import Secrets
from codeact_sandbox.host import protocol
from codeact_sandbox.host.connection import Connection
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.host.waiting import complete
from codeact_sandbox.types.allowed_domains import Policy
from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.result import Result

logger = logging.getLogger("codeact_sandbox")

MAX_CHANNELS = 64
STOP_TIMEOUT_S = 5.0
_OPS = ("open", "data", "credit", "end", "close")


class Gateway:
    """Serves the connections of one sandbox."""

    def __init__(
        self, connector: Connector | None, index: LocalService | None = None, secrets: Secrets | None = None
    ) -> None:
        self.log = ConnectionLog()
        self.secrets = secrets
        self.settings: dict[str, Any] = {
            "window": WINDOW, "channels": MAX_CHANNELS, "domains": connector is not None, "index": index is not None,
            "authority": secrets.authority.pem if secrets is not None else None,
        }  # fmt: skip
        """The settings of the supervisor's end."""
        self._connector = connector or Connector(Policy(()))
        self._index = index
        self._shut = False
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
        connection.handlers[protocol.Frame.CHANNEL] = self.take
        connection.ended.add_done_callback(lambda _: self._hang_up())

    def _run(self) -> None:
        assert self._loop is not None
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end_all())
        finally:
            self._loop.close()

    async def _end_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._index is not None:
            await self._index.close()

    def _hang_up(self) -> None:
        # Once only: a second time would stop the loop while it ends its tasks.
        if self._loop is not None and self._ending.acquire(blocking=False):
            self._later(self._loop.stop)

    def close(self) -> None:
        """End every connection."""
        self._hang_up()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)

    def shut(self) -> None:
        """End every connection and refuse new ones, until the next block that is not part of a replay."""
        self._shut = True
        # Connections that were opened before are served by the old rule: in the thread's queue this comes after them.
        self._later(lambda: [task.cancel() for task in self._serving.values()])

    def begin_block(self, *, shut: bool) -> int:
        """Register the start of a block."""
        # Not earlier: code that a block has left, such as a fork hook, may run between two blocks.
        if not shut:
            self._shut = False
        return self.log.mark()

    def add_connections(self, result: Result, mark: int) -> None:
        """Add the connections that began since a mark of `begin_block` to a result."""
        result.connections = self.log.since(mark)
        result.notes = (*result.notes, *notes(result.connections), *self.log.remarks_since(mark))

    @property
    def idle(self) -> bool:
        """Whether there is no connection."""
        return not self._channels

    def renew(self) -> bool:
        """Forget the connections of the use so far, for the sandbox's next one."""
        if self._channels or self._serving:
            return False
        self.log, self._shut = ConnectionLog(), False
        return True

    def take(self, ident: int, payload: bytes) -> None:
        """Process a frame from the sandbox; called in the connection's thread."""
        message, data = protocol.unpack(payload)
        op, credit = message.get("op"), message.get("bytes", 0)
        if op not in _OPS or not isinstance(credit, int) or not 0 <= credit <= WINDOW or (data and op != "data"):
            raise SandboxProtocolError(f"the sandbox sent a malformed message about a connection: {op!r}")
        channel = self._channels.get(ident)
        if op == "open":
            if channel is not None or len(self._channels) >= MAX_CHANNELS:
                raise SandboxProtocolError("the sandbox opened a connection twice, or too many")
            assert self._loop is not None
            channel = self._channels[ident] = Channel(self, ident, self._loop)
            self._later(self._open, channel)
        elif channel is None:
            raise SandboxProtocolError("the sandbox sent a message about a connection that it has not opened")
        elif not channel.admit(len(data)):
            raise SandboxProtocolError("the sandbox sent more on a connection than there is room for")
        else:
            if op == "close":
                del self._channels[ident]
            self._later(channel.receive, op, data, credit)

    def _later(self, call: Any, *args: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(call, *args)

    def _open(self, channel: Channel) -> None:
        assert self._loop is not None
        connector = None if self._shut else self._connector
        serving = serve(channel, connector, self.log, self._index, self.secrets)
        task = self._serving[channel.ident] = self._loop.create_task(serving)
        task.add_done_callback(lambda _: self._served(channel))
        channel.on_closed = task.cancel

    def _served(self, channel: Channel) -> None:
        task = self._serving.pop(channel.ident)
        channel.close()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection of a sandbox was not served to its end", exc_info=task.exception())

    def send_message(self, ident: int, message: Mapping[str, Any]) -> None:
        """Send a small frame."""
        assert self._connection is not None
        self._connection.send(protocol.pack(protocol.Frame.CHANNEL, ident, message))

    async def send_data(self, ident: int, data: bytes) -> None:
        """Send bytes after everything else; return when it is their turn."""
        assert self._connection is not None
        assert self._loop is not None
        turn = self._loop.create_future()
        frame = protocol.pack(protocol.Frame.CHANNEL, ident, {"op": "data"}, data)
        self._connection.send_bulk(frame, lambda: self._later(complete, turn))
        await turn
