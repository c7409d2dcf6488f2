"""Bytes between a channel and a host, both ways at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from autogen_codeact.sandbox.egress.channel import PIECE, Channel, ChannelClosed
from autogen_codeact.sandbox.egress.outside import Streams

IDLE_S = 300.0
HALF_CLOSED_S = 60.0
LAST_WORDS_S = 5.0


async def relay(channel: Channel, streams: Streams, first: bytes = b"") -> None:
    """Pass bytes on until both sides have ended, or one is gone, or nothing happens any more.

    Args:
        channel: The sandbox's side.
        streams: The host's side.
        first: What the sandbox's side has already said.
    """
    reader, writer = streams
    await together(channel, _up(channel, writer, first), _down(channel, reader))


async def together(
    channel: Channel, up: Coroutine[Any, Any, None], down: Coroutine[Any, Any, None], *, until_heard: bool = False
) -> None:
    """Run both directions of a channel.

    Args:
        channel: The sandbox's side.
        up: Passes on what it says; gets a moment for the last of it when the sandbox has closed the channel.
        down: Passes on what it hears.
        until_heard: Whether all is over at the end of `down`.

    Raises:
        Exception: What one of them has raised.
    """
    tasks = sending, hearing = asyncio.ensure_future(up), asyncio.ensure_future(down)
    closed = asyncio.Event()
    channel.on_closed = closed.set
    if channel.closed:
        closed.set()
    watching = asyncio.ensure_future(closed.wait())
    try:
        while not (sending.done() and hearing.done()):
            limit = IDLE_S if not (sending.done() or hearing.done()) else HALF_CLOSED_S
            waiting = {task for task in tasks if not task.done()} | {watching}
            done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if watching in done:
                await asyncio.wait({sending}, timeout=LAST_WORDS_S)
                return
            for task in done:
                task.result()
            if until_heard and hearing in done:
                return
            if not done and time.monotonic() - channel.heard >= limit:
                return
    finally:
        for task in (*tasks, watching):
            task.cancel()
        await asyncio.gather(*tasks, watching, return_exceptions=True)


async def _up(channel: Channel, writer: asyncio.StreamWriter, first: bytes) -> None:
    data = first or await channel.read()
    while data:
        writer.write(data)
        await writer.drain()
        data = await channel.read()
    if writer.can_write_eof():
        writer.write_eof()


async def _down(channel: Channel, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ChannelClosed):
        while data := await reader.read(PIECE):
            await channel.write(data)
        channel.end()
