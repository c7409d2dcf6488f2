"""Output of a running block, piece by piece."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal

from codeact_sandbox.host.connection import OutputCallback
from codeact_sandbox.host.protocol import Frame
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.result import Result, last_line

Stream = Literal["stdout", "stderr"]
STREAMS: dict[bytes, Stream] = {Frame.STDOUT: "stdout", Frame.STDERR: "stderr"}


@dataclass(frozen=True)
class OutputChunk:
    """A piece of a block's output, or something that it has shown.

    Args:
        block: Which of the blocks, from 0.
        stream: `stdout` (which carries both unless `split_streams=True`) or `stderr`.
        text: The text; characters are never cut in two. Empty if it is a display: the line for it in the output is text.
        display: What the block has shown; None if it is text. Its line is the next text, unless its `offset` is None: then it
            comes later. If its file has to get another name, the result says so.
    """

    block: int
    stream: Stream
    text: str
    display: Display | None = None


class OutputChunks:
    """Carries output from the connection's thread to the event loop that reads it."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()
        self._head_room = limit - limit // 2
        self._shown: dict[Stream, int] = {}
        self._held: set[Stream] = set()

    def listener(self, block: int) -> OutputCallback:
        """Return the callback for one block's output."""
        decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in STREAMS}
        room = dict.fromkeys(STREAMS, self._head_room)
        self._shown, self._held = dict.fromkeys(STREAMS.values(), 0), set()

        def listen(kind: bytes, data: bytes | Display) -> None:
            if isinstance(data, Display):
                # Behind the head, the text before it comes only with the result.
                is_next = data.offset == self._head_room - room[Frame.STDOUT] and "stdout" not in self._held
                self._put(
                    OutputChunk(block, "stdout", "", replace(data, offset=self._shown["stdout"] if is_next else None))
                )
                return
            stream = STREAMS[kind]
            if len(data) > room[kind]:
                # This is the tail, which the runner has kept until now: only the result shows what is missing before it.
                self._held.add(stream)
                data = data[: room[kind]]
            room[kind] -= len(data)
            text = decoders[kind].decode(data)
            if text:
                self._shown[stream] += len(text)
                self._put(OutputChunk(block, stream, text))

        return listen

    def finish(self, block: int, result: Result) -> None:
        """Emit the rest of a block's output."""
        texts = {"stdout": result.output if result.stdout is None else result.stdout, "stderr": result.stderr or ""}
        for stream in sorted(self._held, reverse=True):
            self._put(OutputChunk(block, stream, texts[stream][self._shown[stream] :]))
        line = last_line(result.outcome, result.state)
        if line and result.stdout is None and "stdout" not in self._held:
            self._put(OutputChunk(block, "stdout", line))

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
            running.exception()  # asyncio would log it if nobody had asked
