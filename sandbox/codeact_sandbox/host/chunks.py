"""Output of a running block, piece by piece."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal

from codeact_sandbox.host.connection import OutputCallback
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.result import Result, last_line

Stream = Literal["stdout", "stderr"]
STREAMS: dict[bytes, Stream] = {wire.STDOUT: "stdout", wire.STDERR: "stderr"}


@dataclass(frozen=True)
class OutputChunk:
    """A piece of a block's output, or something that it has shown.

    Args:
        block: Which of the blocks, from 0.
        text: The text; characters are never cut in two. Empty if it is a display: the line for it in the output is text.
        display: What the block has shown; None if it is text. Its line is the next text, unless its `offset` is None: then it
            comes later. If its file has to get another name, the result says so.
    """

    block: int
    text: str
    display: Display | None = None


class OutputChunks:
    """Carries output from the connection's thread to the event loop that reads it."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()
        self._head_room = limit - limit // 2
        self._shown = 0  # characters of the block so far
        self._is_held = False  # whether more has come than there is room for: the result has the rest

    def listener(self, block: int) -> OutputCallback:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        room = self._head_room
        self._shown, self._is_held = 0, False

        def listen(_: bytes, data: bytes | Display) -> None:
            nonlocal room
            if isinstance(data, Display):
                # Behind the head, the text before it comes only with the result.
                is_next = data.offset == self._head_room - room and not self._is_held
                self._put(OutputChunk(block, "", replace(data, offset=self._shown if is_next else None)))
                return
            if len(data) > room:
                # This is the tail, which the runner has kept until now: only the result shows what is missing before it.
                self._is_held = True
                data = data[:room]
            room -= len(data)
            text = decoder.decode(data)
            if text:
                self._shown += len(text)
                self._put(OutputChunk(block, text))

        return listen

    def finish(self, block: int, result: Result) -> None:
        rest = result.output[self._shown :] if self._is_held else last_line(result.outcome, result.state)
        if rest:
            self._put(OutputChunk(block, rest))

    def close(self) -> None:
        """End the iteration: there is no more output."""
        self._put(None)

    def _put(self, item: OutputChunk | None) -> None:
        # After the reader's event loop has closed there is no reader.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def __aiter__(self) -> AsyncIterator[OutputChunk]:
        while (item := await self._queue.get()) is not None:
            yield item


async def stream_output(
    run: Callable[[OutputChunks], Coroutine[Any, Any, Result]],
    limit: int,
    on_start: Callable[[asyncio.Future[Any]], object] | None = None,
) -> AsyncGenerator[OutputChunk | Result, None]:
    """Run blocks, yield an `OutputChunk` for each piece of their output, and finally the result. Closing it kills them."""
    chunks = OutputChunks(limit)
    running = asyncio.ensure_future(run(chunks))
    running.add_done_callback(lambda _: chunks.close())
    if on_start is not None:
        on_start(running)
    try:
        async for chunk in chunks:
            yield chunk
        yield await running
    except asyncio.CancelledError as error:
        running.cancel()
        try:
            await running
        except asyncio.CancelledError as cancelled:
            error.result = getattr(cancelled, "result", None)  # type: ignore[attr-defined]
        raise
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # unless it is retrieved, asyncio logs it
