"""`run_batch`: many tasks at the same time, with everything kept; which attempt begins when, and the rows that come out."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import inspect
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from pydantic_core import from_json, to_json

from autogen_codeact.agents.text import shorten
from autogen_codeact.batch.attempt import (
    AttemptWork,
    Backend,
    BatchContext,
    MakeAgent,
    SandboxKind,
    Worker,
    backoff,
    is_retryable,
)
from autogen_codeact.batch.errors import AttemptError, BatchBudgetError, BatchError
from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.results import MAX_ERROR, Row, shorten_texts, write_summary
from autogen_codeact.batch.settings import BatchSettings, LocalGate
from autogen_codeact.batch.tasks import BadTask, Task, Tasks, as_text, read_tasks
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.options import SandboxOptions

logger = logging.getLogger("autogen_codeact")
MAX_UNREAD = 100  # rows that nobody has taken before no further task begins
CANCEL_S = 60.0  # seconds that cancelled attempts have to end, before they are left alone


@dataclass(frozen=True)
class BatchCounts:
    """The progress of a batch.

    Args:
        total: Rows that it will have; None as long as the tasks have not been read to their end.
        waiting: Tasks that wait for their next attempt.
        cost: What they cost; None without prices.
        seconds_left: About how long it will take; None if that is not known.
    """

    total: int | None = None
    done: int = 0
    failed: int = 0
    invalid: int = 0
    running: int = 0
    waiting: int = 0
    passed: int = 0
    checked: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    seconds_left: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class AttemptFailed:
    """An attempt has failed."""

    id: str
    repeat: int
    attempt: int
    error_class: str
    error: str
    retry_in: float | None


@dataclass(frozen=True)
class Notice:
    """A sentence that a user should know."""

    text: str


BatchEvent = AttemptFailed | Notice


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
        TypeError: make_agent is no function.
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
    context = BatchContext(make_agent, sandbox, sandbox_options, scheduler.gate, settings, scheduler.expected)
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
        self._folder: BatchFolder
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
        rows = self._folder.results.counts if self._total is not None else Counter[str]()
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
            seconds_left=left,
        )

    def expected(self) -> int | None:
        """Return how many more sandboxes will be requested, or None if that is not known; any thread may call it."""
        if self._stopping or self._total is None:
            return 0 if self._stopping else None
        # Those that failed in an earlier command are run again. A check with code takes a sandbox of its own.
        rows = self._folder.results.counts
        done = rows["rows"] - rows["failed"] - rows["waiting"]
        return max(0, self._total - done - (0 if self._checks_run_code else len(self._running)))

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
                dispatcher.add_done_callback(lambda _: self._unread.put_nowait(None))
                while (row := await self._unread.get()) is not None:
                    self._changed.set()
                    yield row
                dispatcher.result()
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
        waiting = {dispatcher, *self._running}
        for task in waiting:
            task.cancel()
        _, late = await asyncio.wait(waiting, timeout=CANCEL_S)
        for task in late:
            logger.warning("%s did not end within %g s after it was cancelled", task.get_name(), CANCEL_S)
        for task in waiting - late:
            if not task.cancelled():
                task.exception()

    async def _read(self) -> None:
        """Read the tasks, and compare them with what they were before anything runs."""
        folder = self._folder
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
        await self._read()
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
            job.log = self._folder.run_folder(job.task, job.repeat, new=True)
        self._order += 1
        heapq.heappush(self._due, (time.monotonic() + delay, self._order, job))

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
        self._unread.put_nowait(row)

    def _on_spent(self, reason: str) -> None:
        self._on_event(Notice(f"{reason}: no further task begins"))
        self.stop()

    def _out_of_time(self, seconds: float) -> None:
        self.gate.end(f"the budget of {seconds:g} s is used up")
        for attempt in self._running:
            attempt.cancel()


def _close_folder(folder: BatchFolder, ended: bool) -> None:
    try:
        if ended:
            folder.compact()
            write_summary(folder.path)
    finally:
        folder.close()


def describe(make_agent: MakeAgent, kind: SandboxKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the results of a batch depend on, by name."""
    described: dict[str, Any] = {
        "agent": f"{getattr(make_agent, '__module__', '')}.{getattr(make_agent, '__qualname__', make_agent)}",
        "sandbox": kind,
    }
    with suppress(OSError, TypeError):
        described["source of make_agent"] = _hash(inspect.getsource(make_agent))
    for name, value in sorted(options.items()):
        described[name] = _hash(from_json(to_json(value, fallback=repr)))
    return described


def _hash(value: object) -> str:
    return "sha256:" + hashlib.sha256(to_json(value)).hexdigest()
