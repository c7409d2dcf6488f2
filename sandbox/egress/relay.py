"""Bytes between a channel and a host, in both directions at once."""

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
FLUSH_S = 5.0


async def relay(channel: Channel, streams: Streams) -> None:
    """Pass bytes on until both sides have ended, or one is gone, or nothing moves for `IDLE_S`.

    Args:
        channel: The sandbox's side.
        streams: The host's side.
    """
    reader, writer = streams
    await relay_with(channel, _up(channel, writer), _down(channel, reader))


async def relay_with(
    channel: Channel,
    up: Coroutine[Any, Any, None],
    down: Coroutine[Any, Any, None],
    *,
    until_down_ends: bool = False,
) -> None:
    """Run both directions of a channel.

    Args:
        channel: The sandbox's side.
        up: Passes on what the sandbox sends; has `FLUSH_S` to finish when the sandbox has closed the channel.
        down: Passes on what the host sends.
        until_down_ends: Whether to return as soon as `down` has ended.

    Raises:
        Exception: What one of them has raised.
    """
    sending, receiving = tasks = asyncio.ensure_future(up), asyncio.ensure_future(down)
    pending: set[asyncio.Future[None]] = set(tasks)
    try:
        while pending:
            limit_s = IDLE_S if len(pending) == len(tasks) else HALF_CLOSED_S
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


async def _up(channel: Channel, writer: asyncio.StreamWriter) -> None:
    while data := await channel.read():
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _down(channel: Channel, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ChannelClosed):
        while data := await reader.read(PIECE):
            await channel.write(data)
        channel.end()
