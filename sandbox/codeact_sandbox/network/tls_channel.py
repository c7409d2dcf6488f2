"""The server's end of TLS in a connection of the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import TypeVar

from codeact_sandbox.network.channels import HEAD_LIMIT, PIECE, Channel, ChannelClosed

T = TypeVar("T")
_HEAD_END = b"\r\n\r\n"


class TlsChannel:
    """A channel whose data is decrypted and encrypted here; it has the methods of `Channel` that serve a request."""

    def __init__(self, channel: Channel, context: ssl.SSLContext, hello: bytes) -> None:
        self.received = 0  # decrypted bytes that the sandbox has received
        self.channel = channel
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(hello)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._buffered = b""
        self._sending = asyncio.Lock()

    async def handshake(self) -> None:
        await self._complete(self._tls.do_handshake)

    async def _complete(self, step: Callable[[], T]) -> T:
        """Repeat a step of TLS until it needs no more data."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
            except ssl.SSLError:
                await self._flush()  # which says why to the client
                raise
            else:
                await self._flush()
                return done
            if data := await self.channel.read():
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._sending:  # the records of two tasks must not mix
            if data := self._outgoing.read():
                await self.channel.write(data)

    async def read(self) -> bytes:
        if self._buffered:
            data, self._buffered = self._buffered, b""
            return data
        try:
            return await self._complete(lambda: self._tls.read(PIECE))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def read_head(self) -> bytes:
        data = b""
        while (end := data.find(_HEAD_END)) < 0:
            if len(data) > HEAD_LIMIT:
                raise asyncio.LimitOverrunError("no empty line", len(data))
            more = await self.read()
            if not more:
                raise asyncio.IncompleteReadError(data, None)
            data += more
        self._buffered = data[end + len(_HEAD_END) :]
        return data[: end + len(_HEAD_END)]

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            size = self._tls.write(view[:PIECE])
            self.received += size
            view = view[size:]
            await self._flush()

    def end(self) -> None:
        """Send nothing more: `close` follows."""

    async def close(self) -> None:
        with contextlib.suppress(ssl.SSLError, ChannelClosed):
            self._tls.unwrap()
        with contextlib.suppress(ChannelClosed):
            await self._flush()
