"""Checkpoint and rollback of a session's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.protocol import Frame


class Checkpoints(ABC):
    """The methods of an executor for the memory of its session."""

    _mode: str
    _unrecorded: int

    @abstractmethod
    async def _ready(self) -> RunnerClient:
        """The running sandbox."""

    async def checkpoint(self) -> None:
        """Save the session's memory, until the next call or `stop`.

        Raises:
            ValueError: There is no session, or a block is running.
        """
        sandbox = await self._session()
        await sandbox.command(Frame.TAKE_CHECKPOINT, {})

    async def rollback(self) -> None:
        """Restore the session's memory to the last `checkpoint()`; can be repeated.

        Files, file offsets, threads and subprocesses are not restored.

        Raises:
            ValueError: There is no session or no checkpoint, or a block is running.
        """
        sandbox = await self._session()
        await sandbox.command(Frame.ROLL_BACK, {})
        self._unrecorded += 1

    async def _session(self) -> RunnerClient:
        if self._mode != "session":
            raise ValueError("there is no session to checkpoint in process mode: use mode='session'")
        return await self._ready()
