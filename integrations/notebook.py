"""`show`: a run in a notebook while it happens."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
)
from IPython.core.getipython import get_ipython
from IPython.display import publish_display_data
from pydantic import PrivateAttr

from autogen_codeact.agents.code_runner import OUTPUT_CHUNK
from autogen_codeact.integrations import notebook_html
from codeact_sandbox import OutputChunk, Result
from codeact_sandbox.types.displays import cut, escaped

INTERVAL_S = 0.25
"""Time between two updates of what a notebook shows of something that is under way."""
MAX_SHOWN = 100
"""Messages that a run shows while it happens; the last one of them is replaced by later ones."""
MAX_LIVE_CHARS = 4_000
"""Characters that are shown of text that is still coming, from its end."""
_RUNNING = "the code runs"
_GREY = "color:var(--jp-ui-font-color2, #666)"
Message = BaseAgentEvent | BaseChatMessage


class ShownTaskResult(TaskResult):
    """A result whose run has been shown already: as the last value of the same cell it is not shown again."""

    _cell: int | None = PrivateAttr(default=None)

    def _ipython_display_(self) -> None:
        if self._cell != _cell_number():
            data = {"text/plain": notebook_html.ending(self), "text/html": notebook_html.run_to_html(self)}
            publish_display_data(data)


async def show(stream: AsyncGenerator[Any, None]) -> Any:
    """Show a run while it happens: who speaks, code, output as it comes, figures. In a terminal, as text.

    Closing or cancelling it, as by an interrupt of the kernel, closes the stream, which kills the code that runs.

    Args:
        stream: What `run_stream(...)` or `on_messages_stream(...)` of an agent or team, or `AsyncSandbox.stream(...)` returns.

    Returns:
        The last item of the stream: a `TaskResult`, `Response` or `Result`. A result that is the last value of the cell is not
        shown a second time.
    """
    view = LiveView() if hasattr(get_ipython(), "kernel") else TextView()
    last: Any = None
    ticking = asyncio.create_task(_tick(view))
    try:
        async with aclosing(stream) as items:
            async for item in items:
                last = item
                view.add(item)
    except BaseException as error:
        view.end(f"ended: {type(error).__name__}")
        raise
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
    view.finish(last)
    return _as_shown(last) if isinstance(last, TaskResult) else last


async def _tick(view: TextView) -> None:
    while True:
        await asyncio.sleep(INTERVAL_S)
        view.update()


def _as_shown(result: TaskResult) -> ShownTaskResult:
    shown = ShownTaskResult.model_construct(messages=result.messages, stop_reason=result.stop_reason)
    shown._cell = _cell_number()
    return shown


def _cell_number() -> int | None:
    return getattr(get_ipython(), "execution_count", None)


class TextView:
    """Writes what happens to standard output, message by message."""

    def add(self, item: object) -> None:
        """Show an item of a stream."""
        if isinstance(item, OutputChunk):
            self._write(notebook_html.plain(item.text))
        elif isinstance(item, Message) and not isinstance(item, ModelClientStreamingChunkEvent):
            self._write(f"{notebook_html.message_to_text(item)}\n\n")

    def update(self) -> None:
        """Show that time passes."""

    def finish(self, last: object) -> None:
        """Show the end of the stream."""
        if isinstance(last, TaskResult):
            self._write(f"{notebook_html.ending(last)}\n")

    def end(self, reason: str) -> None:
        """Show that the stream has broken off."""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class LiveView(TextView):
    """Shows what happens in a notebook. Each message is a display of its own; the last one is updated until it is complete."""

    def __init__(self) -> None:
        self._ident, self._count = "", 0
        self._state, self._text, self._began = "starting", "", time.monotonic()

    def add(self, item: object) -> None:
        """Record an item of a stream; the next `update` shows it."""
        if isinstance(item, OutputChunk):
            self._chunk(_RUNNING, item.text)
        elif isinstance(item, ModelClientStreamingChunkEvent):
            ran = item.metadata.items() >= OUTPUT_CHUNK.items()
            self._chunk(_RUNNING if ran else "the model writes", item.content)
        elif isinstance(item, Message):
            self._complete(notebook_html.message_to_html(item), notebook_html.message_to_text(item))
            if item.source != "user":
                runs = isinstance(item, CodeGenerationEvent) and item.code_blocks
                self._state = _RUNNING if runs else "waiting for the model"

    def update(self) -> None:
        """Show the present state."""
        words = f"{self._state}, {time.monotonic() - self._began:.0f} s"
        text = self._text[-MAX_LIVE_CHARS:]
        tail = f'<pre style="max-height:20em;overflow:auto">{escaped(text)}</pre>' if text.strip() else ""
        self._publish(f'<div class="codeact-live" style="{_GREY}">{words}</div>{tail}', words)

    def finish(self, last: object) -> None:
        """Show the end of the stream."""
        if isinstance(last, Result):
            bundle = last._repr_mimebundle_()
            self._complete(bundle["text/html"], bundle["text/plain"])
            return
        if isinstance(last, Response):
            self.add(last.chat_message)
        self.end(notebook_html.ending(last) if isinstance(last, TaskResult) else "Done")

    def end(self, reason: str) -> None:
        """Replace the present state by a line."""
        line = cut(reason, 1000)
        self._complete(f'<div style="{_GREY}">{escaped(line)}</div>', line, last=True)

    def _chunk(self, state: str, text: str) -> None:
        if self._state != state:
            self._state, self._text, self._began = state, "", time.monotonic()
        self._text = (self._text + text)[-4 * MAX_LIVE_CHARS :]

    def _complete(self, page: str, text: str, *, last: bool = False) -> None:
        self._count += 1
        self._publish(page, text)
        if self._count < MAX_SHOWN or last:
            self._ident = ""
        self._text, self._began = "", time.monotonic()

    def _publish(self, page: str, text: str) -> None:
        update = bool(self._ident)
        self._ident = self._ident or uuid4().hex
        data = {"text/plain": text, "text/html": page}
        publish_display_data(data, transient={"display_id": self._ident}, update=update)
