"""Prints rows while a batch runs; a slow reader does not stop the batch."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Self

from autogen_codeact.cli.output import print_json

MAX_WAITING = 1000
"""Rows that wait to be printed, before the batch waits."""
_PAUSE_S = 0.05
_END_S = 2.0


class OutputClosed(Exception):
    """The reader of the output is gone."""


class RowWriter:
    """Prints rows in a thread of its own; an async context manager. At its end it waits until all have been printed."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="rows", daemon=True)
        self._closed = False

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._waiting.put(None)
        until = time.monotonic() + _END_S
        # After an interruption, a reader that stands still must not keep the command.
        while self._thread.is_alive() and (kind is None or time.monotonic() < until):  # noqa: ASYNC110 - as below
            await asyncio.sleep(_PAUSE_S)

    @property
    def is_stuck(self) -> bool:
        """Whether rows wait for a reader, so that nothing else can be printed either."""
        return self._thread.is_alive()

    async def write(self, row: dict[str, Any]) -> None:
        """Print a row soon; wait while too many wait."""
        while self._waiting.qsize() >= MAX_WAITING and not self._closed:  # noqa: ASYNC110 - the printing thread has no loop
            await asyncio.sleep(_PAUSE_S)
        if self._closed:
            raise OutputClosed
        self._waiting.put(row)

    def _work(self) -> None:
        while (row := self._waiting.get()) is not None:
            try:
                print_json(row)
            except (OSError, ValueError):
                self._closed = True
                return


def discard_unwritable() -> None:
    """Have the interpreter not complain when it ends that output can't be written because its reader or terminal is gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
