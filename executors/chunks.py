"""Output of a running block, piece by piece."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from .connection import Listener

_STREAMS: dict[bytes, Literal["stdout", "stderr"]] = {b"O": "stdout", b"E": "stderr"}


@dataclass(frozen=True)
class OutputChunk:
    """A piece of what a block has written.

    Args:
        block: Which of the blocks, from 0.
        stream: `stdout` (which carries both unless `split_streams=True`) or `stderr`.
        text: The text; characters are never cut in two.
    """

    block: int
    stream: Literal["stdout", "stderr"]
    text: str


class OutputChunks:
    """Carries output from the connection's thread to the event loop that reads it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()

    def listener(self, block: int) -> Listener:
        """Make what is told of one block's output.

        Args:
            block: Which of the blocks, from 0.
        """
        decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in _STREAMS}

        def listen(kind: bytes, data: bytes) -> None:
            text = decoders[kind].decode(data)
            if text:
                self._put(OutputChunk(block, _STREAMS[kind], text))

        return listen

    def close(self) -> None:
        """Say that no more will come."""
        self._put(None)

    def _put(self, item: OutputChunk | None) -> None:
        # What is still on its way when the reader's loop has closed has nobody to read it.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def __aiter__(self) -> AsyncIterator[OutputChunk]:
        while (item := await self._queue.get()) is not None:
            yield item
