"""One connection of the sandbox, as the host sees it: bytes both ways, each side granting the other room."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

WINDOW = 256 * 1024
"""Bytes that each side of a channel may send ahead of the other's reading."""
PIECE = 64 * 1024


class ChannelClosed(ConnectionError):
    """The sandbox has closed the connection, or is gone."""


class Link(Protocol):
    """What carries the frames of all channels."""

    def say(self, ident: int, message: Mapping[str, Any]) -> None:
        """Send a small frame."""
        ...

    async def send(self, ident: int, data: bytes) -> None:
        """Send bytes when everything else has been sent."""
        ...


class Channel:
    """One connection; all of it but `admit` belongs to the event loop's thread.

    Args:
        link: What carries its frames.
        ident: Its number.
    """

    def __init__(self, link: Link, ident: int) -> None:
        self.ident = ident
        self.sent = self.received = 0
        self.heard = time.monotonic()
        self.on_closed: Callable[[], object] | None = None
        self._link = link
        self._inbox = bytearray()
        self._room = WINDOW
        self._room_lock = threading.Lock()
        self._credit = WINDOW
        self._read = 0
        self._at_end = self.closed = self._ended = False
        self._news = asyncio.Event()
        self._granted = asyncio.Event()

    def admit(self, size: int) -> bool:
        """Whether the sandbox may send so many bytes now; called in the connection's thread."""
        with self._room_lock:
            self._room -= size
            return self._room >= 0

    def take(self, op: str, data: bytes, credit: int) -> None:
        """Take in what the sandbox says."""
        self.heard = time.monotonic()
        if op == "credit":
            self._credit += credit
            self._granted.set()
            return
        self._inbox += data
        if op == "end":
            self._at_end = True
        elif op == "close":
            self._at_end = self.closed = True
            self._granted.set()
            if self.on_closed is not None:
                self.on_closed()
        self._news.set()

    async def read(self) -> bytes:
        """Read what has come.

        Returns:
            Bytes; empty when the other side has nothing more to say.
        """
        while not self._inbox and not self._at_end:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._inbox)
        self._inbox.clear()
        self.sent += len(data)
        self._read += len(data)
        if self._read >= WINDOW // 4 and not self.closed:
            with self._room_lock:
                self._room += self._read
            self._link.say(self.ident, {"op": "credit", "bytes": self._read})
            self._read = 0
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the other side takes them.

        Raises:
            ChannelClosed: The other side takes no more.
        """
        view = memoryview(data)
        while view:
            while not self._credit and not self.closed:
                self._granted.clear()
                await self._granted.wait()
            if self.closed or self._ended:
                raise ChannelClosed("the sandbox has closed the connection")
            size = min(len(view), self._credit, PIECE)
            self._credit -= size
            self.received += size
            self.heard = time.monotonic()
            await self._link.send(self.ident, bytes(view[:size]))
            view = view[size:]

    def end(self) -> None:
        """Say that nothing more will be sent."""
        if not self._ended and not self.closed:
            self._ended = True
            self._link.say(self.ident, {"op": "end"})

    def close(self) -> None:
        """Close both directions; what was sent still arrives."""
        self._ended = True
        if not self.closed:
            self._link.say(self.ident, {"op": "close"})
