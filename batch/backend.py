"""Where the attempts of a batch run: in this process, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autogen_codeact.batch.attempt import AttemptWork, WorkerContext, run_attempt
from autogen_codeact.batch.limits import ModelGate
from autogen_codeact.batch.make_agent import MakeAgent
from autogen_codeact.batch.rows import Row
from autogen_codeact.batch.sandboxes import Sandboxes, SandboxSpec
from autogen_codeact.batch.settings import BatchSettings


@dataclass(frozen=True)
class BatchContext:
    """What a backend is started with."""

    make_agent: MakeAgent
    sandboxes: SandboxSpec
    gate: ModelGate
    settings: BatchSettings
    expected: Callable[[], int | None] = lambda: None
    """Returns how many more sandboxes will be requested, if that is known; any thread may call it."""


class Backend(Protocol):
    """Runs attempts."""

    async def start(self, context: BatchContext) -> None:
        """Prepare for attempts."""

    async def run(self, work: AttemptWork) -> Row:
        """Run one attempt; several run at the same time. Its log is in `work.log` when this ends, however it ends."""

    async def stop(self) -> None:
        """End everything, also what runs; repeated calls are harmless."""


class LocalBackend:
    """Runs the attempts in this process, in sandboxes of a pool."""

    def __init__(self) -> None:
        self._worker: WorkerContext | None = None

    async def start(self, context: BatchContext) -> None:
        """Find out which sandboxes this machine has."""
        sandboxes = Sandboxes(context.sandboxes, context.expected)
        self._worker = WorkerContext(context.make_agent, sandboxes, context.gate, context.settings.task_timeout)
        await sandboxes.start()

    async def run(self, work: AttemptWork) -> Row:
        """Run one attempt."""
        assert self._worker is not None, "start() first"
        return await run_attempt(work, self._worker)

    async def stop(self) -> None:
        """End the sandboxes."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.sandboxes.stop()
