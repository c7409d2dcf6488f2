"""Bounds what clients can take of the viewer's process without a token: it may be the process of a run."""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 100
STALL_S = 30.0


class BoundedProtocol(H11Protocol):
    """A connection; the oldest one without a request makes room for a new one, and whoever reads nothing is dropped."""

    _watching: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made = self.loop.time()
        others = cast("set[BoundedProtocol]", self.connections)
        if len(others) > MAX_CONNECTIONS:
            # One that has had an answer has the token: what is refused is closed.
            idle = (each for each in others if not each._is_busy())
            least = min(idle, key=lambda each: (each.cycle is not None, each.made))
            others.discard(least)
            least.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _watch(self) -> None:
        self._watching = self.loop.call_later(STALL_S, self._drop_if_stalled, self.transport.get_write_buffer_size())

    def _drop_if_stalled(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch()
        else:
            self.transport.abort()

    def _is_busy(self) -> bool:
        is_answered = self.cycle is None or self.cycle.response_complete
        return not is_answered or self._watching is not None
