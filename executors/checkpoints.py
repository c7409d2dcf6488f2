"""Going back to what a session's memory was before."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .sandbox import Sandbox


class Checkpoints(ABC):
    """What an executor can do with the memory of its session."""

    _mode: str
    _unrecorded: int

    @abstractmethod
    async def _ready(self) -> Sandbox:
        """The running sandbox."""

    async def checkpoint(self) -> None:
        """Remember the session's memory as it is now, until the next call or `stop`.

        Raises:
            ValueError: There is no session, or a block is running.
        """
        sandbox = await self._session()
        await sandbox.command(b"P", {})

    async def rollback(self) -> None:
        """Go back to the session's memory as it was at `checkpoint()`; can be repeated.

        Files, file offsets, threads and subprocesses are not restored.

        Raises:
            ValueError: There is no session or no checkpoint, or a block is running.
        """
        sandbox = await self._session()
        await sandbox.command(b"R", {})
        self._unrecorded += 1

    async def _session(self) -> Sandbox:
        if self._mode != "session":
            raise ValueError("there is no session to checkpoint in process mode: use mode='session'")
        return await self._ready()
