"""Which attempts a batch is to make: read from its tasks, and from the rows of earlier commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.progress import BatchEvent, Notice
from autogen_codeact.batch.rows import AttemptRecord, Row
from autogen_codeact.batch.source import TaskSource
from autogen_codeact.batch.tasks import BadTask, Task
from autogen_codeact.sandbox.host.waiting import in_thread
from autogen_codeact.sandbox.types.formatting import format_count

COMPARED_AT_ONCE = 500


@dataclass
class Job:
    """A task that waits or runs.

    Args:
        task: The task.
        repeat: Which repetition.
        log: Folder of its run log.
        work_dir: Folder of its workspace on the host.
        attempts: How often it was begun.
        tried: How often in this command.
        failures: Those that failed.
        resumed: How often it continued a log.
        count_log: Whether the tokens in its log are not counted yet.
    """

    task: Task
    repeat: int
    log: Path
    work_dir: Path
    attempts: int = 0
    tried: int = 0
    failures: list[AttemptRecord] = field(default_factory=list)
    resumed: int = 0
    count_log: bool = True


class Jobs:
    """What is to be run.

    Args:
        source: The tasks.
        folder: Where everything is kept, with the rows of earlier commands.
        repeats: How often each task is run.
        total: How many rows there will be, if that is known.
        add_row: Adds the row of a task that can't be used.
        on_event: Is told what happens.
    """

    def __init__(
        self,
        source: TaskSource,
        folder: BatchFolder,
        repeats: int,
        *,
        total: int | None,
        add_row: Callable[[Row], Awaitable[None]],
        on_event: Callable[[BatchEvent], None],
    ) -> None:
        self.total = total
        """How many rows there will be, or None if that is not known yet."""
        self._source = source
        self._folder = folder
        self._repeats = repeats
        self._add_row = add_row
        self._on_event = on_event

    async def read(self) -> AsyncGenerator[Job, None]:
        """Yield what is to be run, in order: all tasks once, then again for each repetition."""
        source, folder, repeats = self._source, self._folder, self._repeats
        earlier = folder.rows
        if source.is_repeatable and folder.has_tasks:
            await self._compare()
        for repeat in range(1, repeats + 1):
            good = bad = own = 0
            async with aclosing(source.read(again=repeat < repeats)) as tasks:
                async for task in tasks:
                    if isinstance(task, BadTask):
                        bad += 1
                        if repeat == 1:
                            await self._refuse(task)
                        continue
                    good += 1
                    if repeat == 1 and earlier:
                        own += folder.rows_of(task.id, repeats)
                    known = repeat > 1 or folder.knows(task)
                    if known and folder.is_done(task.id, repeat):
                        folder.remove_left(task, repeat)
                    elif (job := await in_thread(self._job, task, repeat, known)) is not None:
                        yield job
            if repeat == 1:
                self.total = good * repeats + bad + earlier - own
                self._tell_unseen()

    def _tell_unseen(self) -> None:
        if gone := self._folder.unseen:
            text = f"{format_count(gone, 'task is', 'tasks are')} no longer among the tasks"
            self._on_event(Notice(f"{text}: the rows of earlier commands stay"))

    async def _compare(self) -> None:
        """Find out before anything runs whether a task has changed, and how many rows there will be."""
        good, bad, own, some = 0, 0, 0, list[Task]()
        folder, repeats = self._folder, self._repeats
        async with aclosing(self._source.read(again=True)) as tasks:
            async for task in tasks:
                if isinstance(task, BadTask):
                    bad += 1
                    continue
                good += 1
                own += folder.rows_of(task.id, repeats)
                some.append(task)
                if len(some) == COMPARED_AT_ONCE:
                    await in_thread(folder.compare_tasks, some)
                    some = []
        await in_thread(folder.compare_tasks, some)
        # The rows of tasks that are no longer among the tasks stay, and count as done.
        self.total = good * repeats + bad + folder.rows - own

    async def _refuse(self, task: BadTask) -> None:
        """Write the row of a task that can't be used, beside the one that the same id may have of an earlier command."""
        if self._folder.is_done(task.id, 1):
            task = replace(task, id=f"{task.id[:120]} ({task.place[-60:]})")
        await in_thread(self._folder.see_bad_task, task)
        row = Row(id=task.id, outcome="invalid", attempts=0)
        row.error_class, row.error = "BadTask", f"{task.place}: {task.reason}"
        await self._add_row(row)

    def _job(self, task: Task, repeat: int, known: bool) -> Job | None:
        """Return what is to be done for a task, or None; blocks for the disk."""
        folder = self._folder
        if not known:
            folder.see_task(task, self._repeats)
        if folder.is_done(task.id, repeat):
            return None
        job = Job(task, repeat, folder.run_folder(task, repeat), folder.work_folder(task, repeat))
        if (before := folder.failed_row(task.id, repeat)) is not None:
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
