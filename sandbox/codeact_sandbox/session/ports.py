"""Ports of a sandbox that this machine can reach: the methods `forward` of `AsyncSandbox` and `Sandbox`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Self, TypeVar

from codeact_sandbox.commands import HasCommands, live_client
from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.host.waiting import wait_for
from codeact_sandbox.network.channels import (
    FIRST_OF_HOST,
    HEAD_LIMIT,
    MAX_CHANNELS,
    Channel,
    Channels,
    from_sandbox,
    relay,
    to_sandbox,
)
from codeact_sandbox.types.errors import SandboxDied, SandboxError, Unsupported

HEAD_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 20.0
_HOST = re.compile(rb"\r\nhost:[ \t]*([a-z0-9.]+)(?::[0-9]+)?[ \t]*\r\n", re.IGNORECASE)
_FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_ABORT = struct.pack("ii", 1, 0)
_making = threading.Lock()
T = TypeVar("T")


class Forward:
    """A port of a sandbox that this machine can reach, until `close` or the end of the sandbox.

    Each connection becomes one to 127.0.0.1 in the sandbox, and ends if the port refuses it or has not taken it after 10 s. At
    most 64 are open at once.
    """

    def __init__(self, ports: Ports, port: int) -> None:
        self.port = port
        """The port in the sandbox."""
        self._folder = TemporaryFolder()
        self.socket = self._folder.path / "socket"
        """A Unix socket for any protocol, in a folder that only this user can open."""
        self.url = ""
        """An address on loopback for browsers and curl (HTTP, WebSocket), whose random host name is the key to it."""
        self._ports = ports
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self in self._ports.forwards

    async def close(self) -> None:
        """Close it, with its connections; repeated calls are harmless."""
        with contextlib.suppress(SandboxDied):
            await self._ports.call(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # In the thread of `Ports`

    async def _open(self) -> None:
        name = f"{secrets.token_hex(16)}.localhost"
        accept = partial(self._accept, b"")
        self._servers.append(await asyncio.start_unix_server(accept, self.socket))
        accept = partial(self._accept, name.encode())
        self._servers.append(await asyncio.start_server(accept, "127.0.0.1", 0, limit=HEAD_LIMIT))
        self.url = f"http://{name}:{self._servers[1].sockets[0].getsockname()[1]}/"

    async def _close(self) -> None:
        self._ports.forwards.discard(self)
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await self._folder.remove()

    def _accept(self, name: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # So that `drain` returns when everything has been sent.
        writer.transport.set_write_buffer_limits(0)
        if name:
            self._track(self._ports.ask(name, reader, writer, partial(self._connect, reader, writer)), writer)
        else:
            self._connect(reader, writer, b"")

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        channel = self._ports.open(self.port) if self in self._ports.forwards else None
        if channel is None:
            writer.transport.abort()
        else:
            self._track(self._ports.serve(channel, _relay(channel, head, reader, writer)), writer)

    def _track(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it runs closes nothing itself.
        task.add_done_callback(lambda _: writer.transport.abort() if task.cancelled() else None)


class Ports(Channels):
    def __init__(self) -> None:
        super().__init__()
        self.forwards: set[Forward] = set()
        self._numbers = itertools.count(FIRST_OF_HOST)
        self._asked: dict[asyncio.Task[None], None] = {}

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # it has been closed
            work.close()
            raise SandboxDied("the sandbox has ended, and its ports with it") from None
        return await wait_for(done, ANSWER_TIMEOUT_S, "a port was not opened or closed in time")

    async def listen(self, port: int) -> Forward:
        made = Forward(self, port)
        self.forwards.add(made)
        try:
            await made._open()
        except BaseException as error:
            await made._close()
            if isinstance(error, OSError):
                raise SandboxError(f"port {port} can't be forwarded: {error}") from error
            raise
        return made

    async def _end_all(self) -> None:
        for each in tuple(self.forwards):
            await each._close()
        await super()._end_all()

    def open(self, port: int) -> Channel | None:
        """Connect to a port; None if there are too many connections."""
        if len(self._channels) >= MAX_CHANNELS:
            return None
        channel = self._add(next(self._numbers))
        self.send_message(channel.ident, {"op": "open", "port": port})
        return channel

    def ask(
        self, name: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect: Callable[[bytes], None]
    ) -> asyncio.Task[None]:
        """Let a client show that it knows the name; those that do not hurry make room for others."""
        if len(self._asked) >= MAX_CHANNELS:
            next(iter(self._asked)).cancel()
        task = asyncio.ensure_future(_ask(name, reader, writer, connect))
        self._asked[task] = None
        task.add_done_callback(self._asked.pop)
        return task


async def _ask(
    name: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect: Callable[[bytes], None]
) -> None:
    connected = False
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        found = _HOST.search(head)
        connected = found is not None and secrets.compare_digest(found[1].lower(), name)
        if connected:
            connect(head)
        else:
            writer.write(_FORBIDDEN)
            await writer.drain()
    except (OSError, EOFError, asyncio.LimitOverrunError):
        pass
    finally:
        if not connected:
            writer.close()


async def _relay(channel: Channel, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await channel.write(head)
        await relay(channel, from_sandbox(channel, writer), to_sandbox(channel, reader))
    except OSError:
        pass  # one side has ended it
    finally:
        if channel.broken:  # else a part could look like the whole
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        writer.transport.abort()


async def forward(sandbox: HasCommands, port: int) -> Forward:
    """Let this machine connect to a port on which a program in the sandbox listens, now or later.

    Args:
        sandbox: The sandbox.
        port: The port on 127.0.0.1 in the sandbox. No other one is reachable.

    Returns:
        Where to connect to on this machine.

    Raises:
        ValueError: It is not the number of a port.
        Unsupported: The sandbox has this machine's network.
        SandboxError: The sandbox did not start.
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise ValueError(f"{port!r} is not a port: give a number from 1 to 65535")
    if getattr(sandbox.options, "network", None) == "host":
        raise Unsupported(f"the sandbox has this machine's network (network='host'): connect to 127.0.0.1:{port}")
    client = await live_client(sandbox)
    with _making:  # another thread may do the same
        connection = client.requests.usable_connection()
        if client.ports is None:
            client.ports = Ports()
            client.ports.attach(connection, client.name)
        ports = client.ports
    assert isinstance(ports, Ports)
    opening = asyncio.ensure_future(ports.call(ports.listen(port)))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxError):
            await (await opening).close()  # else it would stay open without an owner
        raise
