"""Output of a running block, piece by piece."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from autogen_codeact.sandbox.host.connection import Listener
from autogen_codeact.sandbox.host.loops import hand_over
from autogen_codeact.sandbox.result import TIMEOUT_LINE, Result

Stream = Literal["stdout", "stderr"]
_STREAMS: dict[bytes, Stream] = {b"O": "stdout", b"E": "stderr"}


@dataclass(frozen=True)
class OutputChunk:
    """A piece of what a block has written.

    Args:
        block: Which of the blocks, from 0.
        stream: `stdout` (which carries both unless `split_streams=True`) or `stderr`.
        text: The text; characters are never cut in two.
    """

    block: int
    stream: Stream
    text: str


class OutputChunks:
    """Carries output from the connection's thread to the event loop that reads it.

    Args:
        limit: Bytes that are kept of each stream of a block: half of them are the head, which comes at once.
    """

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()
        self._head_room = limit - limit // 2
        self._shown: dict[Stream, int] = {}
        self._held: set[Stream] = set()

    def listener(self, block: int) -> Listener:
        """Make what is told of one block's output.

        Args:
            block: Which of the blocks, from 0.
        """
        decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in _STREAMS}
        room = dict.fromkeys(_STREAMS, self._head_room)
        self._shown, self._held = dict.fromkeys(_STREAMS.values(), 0), set()

        def listen(kind: bytes, data: bytes) -> None:
            stream = _STREAMS[kind]
            if len(data) > room[kind]:
                # The tail, which the runner has kept until now: only the result says what is missing before it.
                self._held.add(stream)
                data = data[: room[kind]]
            room[kind] -= len(data)
            text = decoders[kind].decode(data)
            if text:
                self._shown[stream] += len(text)
                self._put(OutputChunk(block, stream, text))

        return listen

    def finish(self, block: int, result: Result) -> None:
        """Show what is left of a block's output.

        Args:
            block: Which of the blocks, from 0.
            result: What came of it.
        """
        texts = {"stdout": result.output if result.stdout is None else result.stdout, "stderr": result.stderr or ""}
        for stream in sorted(self._held, reverse=True):
            self._put(OutputChunk(block, stream, texts[stream][self._shown[stream] :]))
        if result.outcome == "timeout" and result.stdout is None and "stdout" not in self._held:
            self._put(OutputChunk(block, "stdout", TIMEOUT_LINE))

    def close(self) -> None:
        """Say that no more will come."""
        self._put(None)

    def _put(self, item: OutputChunk | None) -> None:
        # What is still on its way when the reader's loop has closed has nobody to read it.
        if not self._loop.is_closed():
            hand_over(self._loop, self._queue.put_nowait, item)

    async def __aiter__(self) -> AsyncIterator[OutputChunk]:
        while (item := await self._queue.get()) is not None:
            yield item
