"""Which attempt of which task begins when: slots, limits, retries, and the rows that come out."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from autogen_codeact.agents.text import shorten
from autogen_codeact.batch.attempt import AttemptWork, Backend, backoff, is_retryable
from autogen_codeact.batch.errors import AttemptError, BatchBudgetError, BatchError
from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.limits import LocalGate
from autogen_codeact.batch.progress import AttemptFailed, BatchCounts, BatchEvent, Notice
from autogen_codeact.batch.reading import Tasks, read_tasks
from autogen_codeact.batch.rows import MAX_ERROR, Row, expected_text, shorten_texts
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.batch.tasks import BadTask, Task
from codeact_sandbox.host.waiting import in_thread

logger = logging.getLogger("autogen_codeact")
MAX_UNREAD = 100  # rows that nobody has taken before no further task begins
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
        self, tasks: Tasks, settings: BatchSettings, backend: Backend, on_event: Callable[[BatchEvent], None]
    ) -> None:
        self.gate = LocalGate(settings, self._on_spent)
        self.ended: Literal["complete", "stopped", "budget"] | None = None
        """How it has ended, if not with an error."""
        self._tasks = tasks
        self._settings = settings
        self._backend = backend
        self._on_event = on_event
        self._changed = asyncio.Event()
        self._due: list[tuple[float, int, Job]] = []
        self._order = 0
        self._running: set[asyncio.Task[None]] = set()
        self._checks_run_code = False
        self._unread: asyncio.Queue[Row | None] = asyncio.Queue()
        self._pending: Iterator[tuple[Task, int]] = iter(())
        self._total: int | None = None  # how many rows there will be
        self._stopping = False
        self._fatal: BaseException | None = None
        self._folder: BatchFolder | None = None
        self._began = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended_rows = 0

    def stop(self) -> None:
        """Begin no further attempt; any thread may call it."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._changed.set)

    def counts(self) -> BatchCounts:
        """Return how far the batch is."""
        rows = self._folder.results.counts if self._folder is not None else Counter[str]()
        rate = 60.0 * self._ended_rows / max(time.monotonic() - self._began, 1e-3)
        left = max(0, self._total - rows["rows"]) / rate * 60.0 if self._total is not None and rate else None
        return BatchCounts(
            total=self._total,
            done=rows["rows"],
            failed=rows["failed"],
            invalid=rows["invalid"],
            running=len(self._running),
            waiting=len(self._due),
            passed=rows["passed"],
            checked=rows["checked"],
            prompt_tokens=self.gate.prompt_tokens,
            completion_tokens=self.gate.completion_tokens,
            cost=self.gate.cost,
            tasks_per_minute=rate,
            seconds_left=left,
        )

    def expected(self) -> int | None:
        """Return how many more sandboxes will be requested, or None if that is not known; any thread may call it."""
        if self._stopping or self._total is None or self._folder is None:
            return 0 if self._stopping else None
        # Those that failed in an earlier command are run again. A check with code takes a sandbox of its own.
        rows = self._folder.results.counts
        done = rows["rows"] - rows["failed"] - rows["waiting"]
        return max(0, self._total - done - (0 if self._checks_run_code else len(self._running)))

    async def rows(self, folder: BatchFolder) -> AsyncGenerator[Row, None]:
        """Run the tasks, and yield their rows."""
        self._folder, self._began = folder, time.monotonic()
        self._loop = asyncio.get_running_loop()
        for text in folder.notices:
            self._on_event(Notice(text))
        counts = folder.results.counts
        self.gate.used(counts["prompt_tokens"], counts["completion_tokens"])
        deadline = None
        if (seconds := self._settings.max_seconds) is not None:
            deadline = asyncio.get_running_loop().call_later(seconds, self._out_of_time, seconds)
        dispatcher = asyncio.create_task(self._dispatch(), name="batch-dispatch")
        dispatcher.add_done_callback(lambda _: self._unread.put_nowait(None))
        try:
            while (row := await self._unread.get()) is not None:
                self._changed.set()
                yield row
            dispatcher.result()
        finally:
            if deadline is not None:
                deadline.cancel()
            await run_uncancelled(self._end(dispatcher))

    async def _end(self, dispatcher: asyncio.Task[None]) -> None:
        waiting = {dispatcher, *self._running}
        for task in waiting:
            task.cancel()
        _, late = await asyncio.wait(waiting, timeout=CANCEL_S)
        for task in late:
            logger.warning("%s did not end within %g s after it was cancelled", task.get_name(), CANCEL_S)
        for task in waiting - late:
            if not task.cancelled():
                task.exception()

    async def _read(self, folder: BatchFolder) -> None:
        """Read the tasks, and compare them with what they were before anything runs."""
        found = await in_thread(read_tasks, self._tasks)
        tasks = [task for task in found if isinstance(task, Task)]
        # The rows of tasks that are no longer among the tasks stay, and count as done.
        others = await in_thread(folder.compare, tasks, self._settings.repeat)
        repeats = range(1, self._settings.repeat + 1)
        self._total = len(tasks) * len(repeats) + len(found) - len(tasks) + others
        self._checks_run_code = any(task.check is not None and task.check.kind in ("python", "regex") for task in tasks)
        # All tasks once, then again for each repetition.
        self._pending = ((task, repeat) for repeat in repeats for task in tasks if not folder.is_done(task, repeat))
        for task in found:
            if isinstance(task, BadTask):
                row = Row(id=task.place, outcome="invalid", attempts=0)
                row.error_class, row.error = "BadTask", task.reason
                await self._add(None, row)

    async def _dispatch(self) -> None:
        assert self._folder is not None
        await self._read(self._folder)
        # More attempts than sandboxes would only wait for each other.
        most = self._settings.max_sandboxes or self._settings.concurrency
        slots = asyncio.Semaphore(min(self._settings.concurrency, most))
        while True:
            await slots.acquire()
            job = await self._next()
            if job is None:
                break
            if self._stopping:
                slots.release()
                continue
            attempt = asyncio.create_task(self._run(job), name=f"batch-{job.task.id}")
            self._running.add(attempt)
            attempt.add_done_callback(lambda task: self._ended(task, slots))
        if self._fatal is not None:
            raise self._fatal
        if self.gate.spent is not None:
            self.ended = "budget"
        else:
            self.ended = "stopped" if self._stopping else "complete"

    def _ended(self, attempt: asyncio.Task[None], slots: asyncio.Semaphore) -> None:
        self._running.discard(attempt)
        slots.release()
        self._changed.set()
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            self._fatal = self._fatal or error
            self._stopping = True

    async def _next(self) -> Job | None:
        """Return what begins next: an attempt that is due, or else the next task; None at the end."""
        while True:
            self._changed.clear()
            if self._stopping:
                if not self._running:
                    return None
            elif self._unread.qsize() < MAX_UNREAD:
                if self._due and self._due[0][0] <= time.monotonic():
                    return heapq.heappop(self._due)[2]
                if (pending := next(self._pending, None)) is not None:
                    return await in_thread(self._job, *pending)
                if not self._due and not self._running:
                    return None
            await self._wait()

    def _job(self, task: Task, repeat: int) -> Job:
        """Return what is to be done for a task; blocks for the disk."""
        folder = self._folder
        assert folder is not None
        job = Job(task, folder.run_folder(task, repeat), folder.work_folder(task, repeat), repeat, count_log=True)
        if (before := folder.failed_row(task, repeat)) is not None:
            job.attempts, job.resumed, job.count_log = before.attempts, before.resumed, False
        return job

    async def _wait(self) -> None:
        left = None
        if self._due and not self._stopping and self._unread.qsize() < MAX_UNREAD:
            left = self._due[0][0] - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()

    async def _run(self, job: Job) -> None:
        job.attempts += 1
        job.tried += 1
        # The clock of the machine may be set meanwhile, so it tells no duration.
        started, began = datetime.now(UTC), time.monotonic()
        work, job.count_log = replace(job), False
        try:
            row = await self._backend.run(work)
        except BatchBudgetError:
            return
        except BatchError:
            raise  # ends the batch
        except Exception as error:
            failed = error
            if not isinstance(failed, AttemptError):
                logger.exception("the backend failed")
                failed = AttemptError(type(error).__name__, str(error)[:MAX_ERROR], retryable=is_retryable(error))
            await self._failed(job, failed, started, time.monotonic() - began)
        else:
            job.resumed += row.resumed
            if row.log_problem is not None:
                self._on_event(Notice(f"the run log of task {job.task.id!r} is incomplete: {row.log_problem}"))
            await self._add(job, self._completed(job, row))

    async def _failed(self, job: Job, error: AttemptError, started: datetime, seconds: float) -> None:
        if self.gate.spent is not None:
            return  # what fails then, fails because of that
        again = (error.retryable or error.unusable_log) and job.tried < self._settings.attempts
        delay = None
        if again:
            delay = 0.0 if error.unusable_log else backoff(self._settings.backoff_s, job.tried, error.retry_after)
        self._on_event(AttemptFailed(job.task.id, job.repeat, job.attempts, error.error_class, error.error, delay))
        if delay is None:
            row = Row(id=job.task.id, repeat=job.repeat, outcome="failed", **error.usage)
            row.error_class, row.error, row.node, row.run = error.error_class, error.error, error.node, error.run
            row.started, row.seconds = started, seconds
            await self._add(job, self._completed(job, row))
            return
        if error.unusable_log:
            assert self._folder is not None
            job.log = self._folder.run_folder(job.task, job.repeat, new=True)
        self._order += 1
        heapq.heappush(self._due, (time.monotonic() + delay, self._order, job))

    def _completed(self, job: Job, row: Row) -> Row:
        """Return a row with what its attempt does not know."""
        assert self._folder is not None
        row.metadata, row.task = dict(job.task.metadata), shorten(job.task.task, MAX_ERROR)
        row.expected = expected_text(job.task.expected)
        row.attempts, row.resumed = job.attempts, job.resumed
        row.log = str(job.log.relative_to(self._folder.path.absolute()))
        prices = self._settings.prices
        row.cost = prices.cost(row.prompt_tokens, row.completion_tokens) if prices is not None else None
        return row

    async def _add(self, job: Job | None, row: Row) -> None:
        folder = self._folder
        assert folder is not None
        shorten_texts(row)
        await in_thread(lambda: folder.add(row, job.task if job is not None else None))
        self._ended_rows += 1
        self._unread.put_nowait(row)

    def _on_spent(self, reason: str) -> None:
        self._on_event(Notice(f"{reason}: no further task begins"))
        self.stop()

    def _out_of_time(self, seconds: float) -> None:
        self.gate.end(f"the budget of {seconds:g} s is used up")
        for attempt in self._running:
            attempt.cancel()
