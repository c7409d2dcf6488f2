"""Where the attempts of a batch run: in this process, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autogen_core import ComponentModel

from autogen_codeact.batch.attempt import AttemptResult, AttemptWork, WorkerContext, run_attempt
from autogen_codeact.batch.components import AgentTemplate, MakeAgent, is_component
from autogen_codeact.batch.limits import ModelGate
from autogen_codeact.batch.sandboxes import Sandboxes, SandboxSpec
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.batch.waits import WaitCounter
from autogen_codeact.executors import SandboxPool


@dataclass(frozen=True)
class BatchContext:
    """What a backend is started with.

    Args:
        make_agent: As the caller has given it: a function, or a component config.
        sandboxes: Which sandboxes the attempts use.
        gate: What each model call passes; of this process.
        settings: Those of the batch.
        waits: Counts the attempts that wait for a sandbox, in this process.
        expected: Returns how many more sandboxes will be requested, if that is known; any thread may call it.
    """

    make_agent: MakeAgent | Mapping[str, Any] | ComponentModel
    sandboxes: SandboxSpec
    gate: ModelGate
    settings: BatchSettings
    waits: WaitCounter = field(default_factory=WaitCounter)
    expected: Callable[[], int | None] = lambda: None

    def worker(self, gate: ModelGate, pool: SandboxPool | None = None) -> WorkerContext:
        """Make what the attempts of one process share, not started.

        Args:
            gate: The gate of that process.
            pool: A running pool, in place of one that is made. Default: none.
        """
        make_agent = self.make_agent
        make = AgentTemplate(make_agent) if isinstance(make_agent, Mapping | ComponentModel) else make_agent
        sandboxes = Sandboxes(self.sandboxes, pool, self.expected)
        return WorkerContext(make, sandboxes, gate, self.settings.task_timeout, self.waits)


class Backend(Protocol):
    """Runs attempts."""

    async def start(self, context: BatchContext) -> None:
        """Prepare for attempts.

        Raises:
            Exception: It can't; `stop` is called after that, too.
        """

    async def run(self, work: AttemptWork) -> AttemptResult:
        """Run one attempt; several run at the same time. Its log is in `work.log` when this ends, however it ends.

        Raises:
            AttemptError: It has failed.
            BatchBudgetError: The budget is used up.
        """

    async def stop(self) -> None:
        """End everything, also what runs; repeated calls are harmless."""


class LocalBackend:
    """Runs the attempts in this process, in sandboxes of a pool.

    Args:
        pool: A running pool of the caller's own. Default: one that is made from the options of the batch.
    """

    def __init__(self, pool: SandboxPool | None = None) -> None:
        self._pool = pool
        self._worker: WorkerContext | None = None

    async def start(self, context: BatchContext) -> None:
        """Prepare for attempts.

        Raises:
            SandboxUnavailable: There is no sandbox on this machine.
            ValueError: An option is invalid.
        """
        self._worker = context.worker(context.gate, self._pool)
        if not isinstance(self._worker.make, AgentTemplate):
            await self._worker.sandboxes.start()

    async def run(self, work: AttemptWork) -> AttemptResult:
        """Run one attempt.

        Raises:
            AttemptError: It has failed.
            BatchBudgetError: The budget is used up.
        """
        assert self._worker is not None, "start() first"
        return await run_attempt(work, self._worker)

    async def stop(self) -> None:
        """End the sandboxes, and close the models of a component config."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            await worker.sandboxes.stop()
        finally:
            if isinstance(worker.make, AgentTemplate):
                await worker.make.close()


__all__ = ["Backend", "BatchContext", "LocalBackend", "is_component"]
