"""`run_batch`: many tasks at the same time, with everything kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from autogen_codeact.batch.attempt import (
    Backend,
    BatchContext,
    MakeAgent,
    SandboxKind,
    Worker,
)
from autogen_codeact.batch.folder import BatchFolder, describe
from autogen_codeact.batch.progress import BatchCounts, BatchEvent
from autogen_codeact.batch.results import Row
from autogen_codeact.batch.scheduler import Scheduler
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.batch.tasks import Tasks
from codeact_sandbox.types.options import SandboxOptions


def run_batch(
    make_agent: MakeAgent,
    tasks: Tasks,
    *,
    out: Path | str | None = None,
    settings: BatchSettings | None = None,
    backend: Backend | None = None,
    sandbox: SandboxKind | SandboxOptions = "auto",
    on_event: Callable[[BatchEvent], None] | None = None,
    accept_changes: bool = False,
    configuration: Mapping[str, Any] | None = None,
    **sandbox_options: Any,
) -> Batch:
    """Run many tasks, and yield their rows as they are finished.

    Args:
        make_agent: Called for each attempt with an executor, which is started and stopped for it, and with the `Task` if it
            takes a second argument; returns an agent or a team, or awaits one.
        tasks: Path of a JSONL or CSV file, or an iterable of tasks, objects or texts. All are read before the first one runs.
        out: Folder of the batch. The same call again goes on where it was interrupted. Default: a temporary one, removed at
            the end.
        settings: Concurrency, attempts, limits and budget. Default: `BatchSettings()`.
        backend: A Ray cluster in which attempts run. Default: they run in this process.
        sandbox: "auto" (the default): Docker if an engine answers, else bubblewrap. Or "docker" or "bubblewrap", or the options
            of the sandboxes.
        on_event: Called with what happens, for a display of progress.
        accept_changes: Whether changed tasks are run again, and a changed configuration is accepted. Default: both end the batch.
        configuration: What the results depend on, by name, as JSON values without secrets; changes are noticed. Default: name
            and source of the function, and the options of the sandbox.
        sandbox_options: Options of the executors, such as `image`, `timeout` or `network`. Default of `mode`: "session".

    Returns:
        A `Batch`: iterate it with `async for`, in `contextlib.aclosing` if you may leave the loop early.

    Raises:
        ValueError: Arguments don't go together.
        TypeError: make_agent is not a function.
    """
    if not callable(make_agent):
        raise TypeError(
            f"make_agent has to be a function that makes a new agent for each task, not a {type(make_agent).__name__}."
        )
    settings = settings or BatchSettings()
    if isinstance(sandbox, SandboxOptions):
        if sandbox_options:
            raise ValueError(f"sandbox= has the options already: {', '.join(sorted(sandbox_options))} can't be added.")
        options = {name: getattr(sandbox, name) for name in sandbox.model_fields_set}
        sandbox, sandbox_options = sandbox.backend, options
    few = len(tasks) if isinstance(tasks, Sequence) and not isinstance(tasks, str) else settings.concurrency
    settings = settings.model_copy(update={"concurrency": max(1, min(settings.concurrency, few))})
    if configuration is None:
        configuration = describe(make_agent, sandbox, sandbox_options)
    opening = partial(BatchFolder.open, configuration=configuration, accept_changes=accept_changes)
    scheduler = Scheduler(tasks, settings, backend or Worker(), on_event)
    context = BatchContext(make_agent, sandbox, sandbox_options, scheduler.gate, settings)
    return Batch(scheduler, scheduler.run(context, Path(out) if out is not None else None, opening))


class Batch:
    """A batch that is run by iterating it; made by `run_batch`.

    If it is closed, or whoever iterates it is cancelled, everything that runs ends at once, and can be continued.
    """

    def __init__(self, scheduler: Scheduler, rows: AsyncGenerator[Row, None]) -> None:
        # The tasks of the scheduler know nothing of this object: a loop that is left without closing it ends them.
        self._scheduler = scheduler
        self._rows = rows

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        """Return the next row.

        Raises:
            BatchError: The batch can't go on; the message says why.
        """
        return await anext(self._rows)

    async def aclose(self) -> None:
        """End everything that runs, at once; repeated calls are harmless."""
        await self._rows.aclose()

    def stop(self) -> None:
        """Begin no further task; those that run go to their end, and then the iteration ends. Any thread may call it."""
        self._scheduler.stop()

    @property
    def ended(self) -> Literal["complete", "stopped", "budget"] | None:
        """How the iteration has ended: with all rows, by `stop()`, or by the budget; None before that, and after an error."""
        return self._scheduler.ended

    @property
    def counts(self) -> BatchCounts:
        """How far it is."""
        return self._scheduler.counts()
