"""Which attempts a batch is to make: read from its tasks, and from the rows of earlier commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from autogen_codeact.batch.attempt import AttemptWork
from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.reading import Tasks, read_tasks
from autogen_codeact.batch.rows import AttemptRecord, Row
from autogen_codeact.batch.tasks import BadTask, Task
from codeact_sandbox.host.waiting import in_thread


@dataclass
class Job(AttemptWork):
    """A task that waits or runs."""

    attempts: int = 0
    tried: int = 0
    failures: list[AttemptRecord] = field(default_factory=list)
    resumed: int = 0


class Jobs:
    """What is to be run."""

    def __init__(
        self,
        tasks: Tasks,
        folder: BatchFolder,
        repeats: int,
        *,
        total: int | None,
        add_row: Callable[[Row], Awaitable[None]],
    ) -> None:
        self.total = total
        """How many rows there will be, or None if that is not known yet."""
        self._tasks = tasks
        self._is_repeatable = isinstance(tasks, str | Path | Sequence) or getattr(tasks, "is_repeatable", False)
        self._folder = folder
        self._repeats = repeats
        self._add_row = add_row

    async def read(self) -> AsyncGenerator[Job, None]:
        """Yield what is to be run, in order: all tasks once, then again for each repetition."""
        folder, repeats = self._folder, self._repeats
        if not self._is_repeatable and repeats > 1:
            self._tasks = [task async for task in read_tasks(self._tasks)]
        if self._is_repeatable and folder.counts.rows:
            async for _ in self._read_once():  # whether one has changed is found out before anything runs
                pass
        for repeat in range(1, repeats + 1):
            async with aclosing(self._read_once()) as tasks:
                async for task in tasks:
                    if isinstance(task, BadTask):
                        if repeat == 1:
                            await self._refuse(task)
                    elif not folder.is_done(task, repeat):
                        yield await in_thread(self._job, task, repeat)

    async def _read_once(self) -> AsyncGenerator[Task | BadTask, None]:
        """Yield the tasks, compare them with what they were, and count them."""
        number = 0
        async with aclosing(read_tasks(self._tasks)) as tasks:
            async for task in tasks:
                number += 1 if isinstance(task, BadTask) else self._repeats
                if isinstance(task, Task):
                    self._folder.see(task)
                yield task
        # The rows of tasks that are no longer among the tasks stay, and count as done.
        self.total = number + self._folder.index.others(self._repeats)

    async def _refuse(self, task: BadTask) -> None:
        """Write the row of a task that can't be used, beside the one that the same id may have of an earlier command."""
        if self._folder.index.find(task.id, 1) is not None:
            task = replace(task, id=f"{task.id[:120]} ({task.place[-60:]})")
        self._folder.index.see(task.id)
        row = Row(id=task.id, outcome="invalid", attempts=0)
        row.error_class, row.error = "BadTask", f"{task.place}: {task.reason}"
        await self._add_row(row)

    def _job(self, task: Task, repeat: int) -> Job:
        """Return what is to be done for a task; blocks for the disk."""
        folder = self._folder
        job = Job(task, folder.run_folder(task, repeat), folder.work_folder(task, repeat), repeat, count_log=True)
        if (before := folder.failed_row(task, repeat)) is not None:
            job.attempts, job.resumed, job.count_log = before.attempts, before.resumed, False
            job.failures = before.failures
            with suppress(ValueError):  # it was changed by hand
                fields = {name: getattr(before, name) for name in AttemptRecord.model_fields}
                job.failures = [*job.failures, AttemptRecord(**fields)]
        return job
