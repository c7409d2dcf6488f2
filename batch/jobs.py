"""Which attempts a batch is to make: read from its tasks, and from the rows of earlier commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from autogen_codeact.batch.attempt import AttemptWork
from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.progress import BatchEvent, Notice
from autogen_codeact.batch.reading import Tasks, read_tasks
from autogen_codeact.batch.rows import AttemptRecord, Row
from autogen_codeact.batch.tasks import BadTask, Task
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.formatting import format_count


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
        on_event: Callable[[BatchEvent], None],
    ) -> None:
        self.total = total
        """How many rows there will be, or None if that is not known yet."""
        self._tasks = tasks
        self._is_repeatable = isinstance(tasks, str | Path | Sequence) or getattr(tasks, "is_repeatable", False)
        self._folder = folder
        self._repeats = repeats
        self._add_row = add_row
        self._on_event = on_event

    async def read(self) -> AsyncGenerator[Job, None]:
        """Yield what is to be run, in order: all tasks once, then again for each repetition."""
        folder, repeats = self._folder, self._repeats
        if self._is_repeatable and folder.counts.rows:
            async for _ in self._read_once():  # whether one has changed is found out before anything runs
                pass
        for repeat in range(1, repeats + 1):
            async with aclosing(self._read_once()) as tasks:
                async for task in tasks:
                    if isinstance(task, BadTask):
                        if repeat == 1:
                            await self._refuse(task)
                    elif folder.is_done(task, repeat):
                        folder.remove_left(task, repeat)
                    else:
                        yield await in_thread(self._job, task, repeat)
            if repeat == 1 and (gone := folder.index.unseen()):
                text = f"{format_count(gone, 'task is', 'tasks are')} no longer among the tasks"
                self._on_event(Notice(f"{text}: the rows of earlier commands stay"))

    async def _read_once(self) -> AsyncGenerator[Task | BadTask, None]:
        """Yield the tasks, compare them with what they were, and count them."""
        number, kept = 0, list[Task | BadTask]()
        async with aclosing(read_tasks(self._tasks)) as tasks:
            async for task in tasks:
                if not self._is_repeatable and self._repeats > 1:
                    kept.append(task)
                number += 1 if isinstance(task, BadTask) else self._repeats
                if isinstance(task, Task):
                    self._folder.see(task)
                yield task
        if kept:
            self._tasks, self._is_repeatable = kept, True
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
            if before.started is not None:
                last = AttemptRecord(
                    started=before.started,
                    seconds=before.seconds,
                    error_class=before.error_class or "",
                    error=before.error or "",
                    engine=before.engine,
                )
                job.failures = [*job.failures, last]
        return job
