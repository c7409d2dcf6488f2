"""Which attempt of a batch begins when, and the rows that come out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from autogen_codeact.agents.text import shorten
from autogen_codeact.batch.attempt import (
    AttemptWork,
    Backend,
    BatchContext,
    backoff,
    is_retryable,
)
from autogen_codeact.batch.errors import BatchBudgetError, BatchError
from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.progress import AttemptFailed, BatchCounts, BatchEvent, Notice
from autogen_codeact.batch.results import MAX_ERROR, AttemptError, Row, shorten_texts, write_summary
from autogen_codeact.batch.settings import BatchSettings, LocalGate
from autogen_codeact.batch.tasks import BadTask, Task, Tasks, as_text, read_tasks
from codeact_sandbox.host.waiting import in_thread

logger = logging.getLogger("autogen_codeact")
MAX_UNREAD = 100  # rows that were not read before no further task begins
CANCEL_S = 60.0  # seconds that cancelled attempts have to end, before they are left alone


async def run_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine to its end, also if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


@dataclass
class Job(AttemptWork):
    """A task that waits or runs."""

    attempts: int = 0
    tried: int = 0
    resumed: int = 0


class Scheduler:
    """Runs the tasks of one batch."""

    def __init__(
        self, tasks: Tasks, settings: BatchSettings, backend: Backend, on_event: Callable[[BatchEvent], None] | None
    ) -> None:
        self.gate = LocalGate(settings, self._on_spent)
        self.ended: Literal["complete", "stopped", "budget"] | None = None
        self._tasks = tasks
        self._settings = settings
        self._backend = backend
        self._on_event = on_event or (lambda event: None)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._jobs: set[asyncio.Task[None]] = set()
        self._waiting = 0  # jobs that wait for their next attempt
        self._unread: asyncio.Queue[Row | None] = asyncio.Queue(MAX_UNREAD)
        self._total: int | None = None  # how many rows there will be
        self._stopping = False
        self._stopped = asyncio.Event()
        self._fatal: BaseException | None = None
        self._folder: BatchFolder
        self._began = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended_rows = 0

    def stop(self) -> None:
        """Begin no further attempt; any thread may call it."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._stopped.set)

    def counts(self) -> BatchCounts:
        """Return how far the batch is."""
        rows = self._folder.results.counts if self._total is not None else Counter[str]()
        rate = 60.0 * self._ended_rows / max(time.monotonic() - self._began, 1e-3)
        left = max(0, self._total - rows["rows"]) / rate * 60.0 if self._total is not None and rate else None
        return BatchCounts(
            total=self._total,
            done=rows["rows"],
            failed=rows["failed"],
            invalid=rows["invalid"],
            running=len(self._jobs) - self._waiting,
            waiting=self._waiting,
            passed=rows["passed"],
            checked=rows["checked"],
            prompt_tokens=self.gate.prompt_tokens,
            completion_tokens=self.gate.completion_tokens,
            cost=self.gate.cost,
            seconds_left=left,
        )

    async def run(
        self, context: BatchContext, out: Path | None, opening: Callable[[Path], BatchFolder]
    ) -> AsyncGenerator[Row, None]:
        """Run the tasks, and yield their rows."""
        with ExitStack() as opened:
            path = out or Path(opened.enter_context(TemporaryDirectory(prefix="codeact-batch-"))) / "batch"
            # Whoever is cancelled meanwhile has to wait for the thread and close the folder: its lock would stay.
            self._loop = asyncio.get_running_loop()
            opened_folder = self._loop.run_in_executor(None, opening, path)
            deadline = dispatcher = None
            try:
                self._folder = await asyncio.shield(opened_folder)
                await self._backend.start(context)
                self._began = time.monotonic()
                for text in self._folder.notices:
                    self._on_event(Notice(text))
                counts = self._folder.results.counts
                self.gate.used(counts["prompt_tokens"], counts["completion_tokens"])
                if (seconds := self._settings.max_seconds) is not None:
                    deadline = self._loop.call_later(seconds, self._out_of_time, seconds)
                dispatcher = asyncio.create_task(self._dispatch(), name="batch-dispatch")
                while (row := await self._unread.get()) is not None:
                    yield row
                if self._fatal is not None:
                    raise self._fatal
            finally:
                if deadline is not None:
                    deadline.cancel()
                await run_uncancelled(self._close(dispatcher, opened_folder))
        if self.gate.spent is not None:
            reached = self.counts()
            total = reached.total
            left = f", with {total - reached.done:,} of {total:,} rows left" if total is not None else ""
            raise BatchBudgetError(f"{self.gate.spent}{left}: run the same again with a larger one to go on")

    async def _close(self, dispatcher: asyncio.Task[None] | None, opened: asyncio.Future[BatchFolder]) -> None:
        try:
            if dispatcher is not None:
                await self._end(dispatcher)
        finally:
            try:
                await self._backend.stop()
            finally:
                await asyncio.wait({opened})
                if opened.exception() is None:
                    await asyncio.to_thread(_close_folder, opened.result(), self.ended is not None)

    async def _end(self, dispatcher: asyncio.Task[None]) -> None:
        waiting = {dispatcher, *self._jobs}
        for task in waiting:
            task.cancel()
        _, late = await asyncio.wait(waiting, timeout=CANCEL_S)
        for task in late:
            logger.warning("%s did not end within %g s after it was cancelled", task.get_name(), CANCEL_S)
        for task in waiting - late:
            if not task.cancelled():
                task.exception()

    async def _read(self) -> Iterator[tuple[Task, int]]:
        """Read the tasks, compare them with what they were before anything runs, and return what is to be done."""
        folder = self._folder
        found = await in_thread(read_tasks, self._tasks)
        tasks = [task for task in found if isinstance(task, Task)]
        # The rows of tasks that are no longer among the tasks stay, and count as done.
        others = await in_thread(folder.compare, tasks, self._settings.repeat)
        repeats = range(1, self._settings.repeat + 1)
        self._total = len(tasks) * len(repeats) + len(found) - len(tasks) + others
        for task in found:
            if isinstance(task, BadTask):
                row = Row(id=task.place, outcome="invalid", attempts=0)
                row.error_class, row.error = "BadTask", task.reason
                await self._add(None, row)
        # All tasks once, then again for each repetition.
        return ((task, repeat) for repeat in repeats for task in tasks if not folder.is_done(task, repeat))

    async def _dispatch(self) -> None:
        """Run all tasks; `None` among the rows is the end."""
        try:
            for task, repeat in await self._read():
                await self._slots.acquire()
                if self._stopping:
                    break
                job = await in_thread(self._job, task, repeat)
                work = asyncio.create_task(self._work(job), name=f"batch-{task.id}")
                self._jobs.add(work)
                work.add_done_callback(self._ended)
            while self._jobs:
                await asyncio.wait(self._jobs)
                await asyncio.sleep(0)  # for the callbacks
            if self._fatal is None:
                self.ended = "budget" if self.gate.spent is not None else "stopped" if self._stopping else "complete"
        except Exception as error:  # noqa: BLE001 - it is raised where the rows are read
            self._fatal = error
        await self._unread.put(None)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._jobs.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            self._fatal = self._fatal or error
            self.stop()

    def _job(self, task: Task, repeat: int) -> Job:
        """Return what is to be done for a task; blocks for the disk."""
        folder = self._folder
        job = Job(task, folder.run_folder(task, repeat), folder.work_folder(task, repeat), repeat, count_log=True)
        if (before := folder.failed_row(task, repeat)) is not None:
            job.attempts, job.resumed, job.count_log = before.attempts, before.resumed, False
        return job

    async def _work(self, job: Job) -> None:
        """Make attempts at a task; it has a slot for the first one."""
        delay = await self._attempt(job)
        while delay is not None and not await self._stops_within(delay):
            await self._slots.acquire()
            delay = await self._attempt(job)

    async def _stops_within(self, seconds: float) -> bool:
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    async def _attempt(self, job: Job) -> float | None:
        """Make an attempt, and release its slot; return the seconds until the next one, if there is to be another."""
        try:
            if self._stopping:
                return None
            job.attempts += 1
            job.tried += 1
            work, job.count_log = replace(job), False
            row = await self._backend.run(work)
        except BatchBudgetError:
            return None
        except BatchError:
            raise  # ends the batch
        except AttemptError as error:
            return await self._failed(job, error)
        except Exception as error:
            logger.exception("the backend failed")
            row = Row(id=job.task.id, repeat=job.repeat, outcome="failed")
            row.error_class, row.error = type(error).__name__, str(error)[:MAX_ERROR]
            return await self._failed(job, AttemptError(row, retryable=is_retryable(error)))
        else:
            job.resumed += row.resumed
            if row.log_problem is not None:
                self._on_event(Notice(f"the run log of task {job.task.id!r} is incomplete: {row.log_problem}"))
            await self._add(job, self._completed(job, row))
            return None
        finally:
            self._slots.release()

    async def _failed(self, job: Job, error: AttemptError) -> float | None:
        if self.gate.spent is not None:
            return None  # what fails then, fails because of that
        again = (error.retryable or error.unusable_log) and job.tried < self._settings.attempts
        delay = None
        if again:
            delay = 0.0 if error.unusable_log else backoff(self._settings.backoff_s, job.tried)
        row = error.row
        self._on_event(AttemptFailed(row.id, row.repeat, job.attempts, str(row.error_class), str(row.error), delay))
        if delay is None:
            await self._add(job, self._completed(job, row))
        elif error.unusable_log:
            job.log = self._folder.run_folder(job.task, job.repeat, new=True)
        return delay

    def _completed(self, job: Job, row: Row) -> Row:
        """Return a row with what its attempt does not know."""
        row.metadata, row.task = dict(job.task.metadata), shorten(job.task.task, MAX_ERROR)
        row.expected = as_text(job.task.expected) if job.task.expected is not None else None
        row.attempts, row.resumed = job.attempts, job.resumed
        row.log = str(job.log.relative_to(self._folder.path.absolute()))
        prices = self._settings.prices
        row.cost = prices.cost(row.prompt_tokens, row.completion_tokens) if prices is not None else None
        return row

    async def _add(self, job: Job | None, row: Row) -> None:
        folder = self._folder
        shorten_texts(row)
        await in_thread(lambda: folder.add(row, job.task if job is not None else None))
        self._ended_rows += 1
        await self._unread.put(row)

    def _on_spent(self, reason: str) -> None:
        self._on_event(Notice(f"{reason}: no further task begins"))
        self.stop()

    def _out_of_time(self, seconds: float) -> None:
        self.gate.end(f"the budget of {seconds:g} s is used up")
        for work in self._jobs:
            work.cancel()


def _close_folder(folder: BatchFolder, ended: bool) -> None:
    try:
        if ended:
            folder.compact()
            write_summary(folder.path)
    finally:
        folder.close()
