"""One attempt at a task: an agent in a sandbox of a pool, with a log, the checks of its answer, and whether it is repeated."""

from __future__ import annotations

import asyncio
import inspect
import random
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents.model_calls import ModelTimeoutError
from autogen_codeact.batch.checks import check_answer, decide_passed
from autogen_codeact.batch.errors import BatchBudgetError, TaskTimeoutError, UnusableAgentError
from autogen_codeact.batch.results import MAX_ERROR, AttemptError, Outcome, Row
from autogen_codeact.batch.settings import BatchSettings, GatedClient, ModelGate
from autogen_codeact.batch.tasks import Task
from autogen_codeact.executors import ExecutorPool
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.agents import secrets_of
from autogen_codeact.runs.answers import RunWaiting
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.events import MessageLogged
from autogen_codeact.runs.messages import load_message
from autogen_codeact.runs.plan import RunIsFinishedError
from autogen_codeact.runs.reader import RawEvent, load_run
from autogen_codeact.runs.recording import recorded
from autogen_codeact.runs.redaction import Redaction, known_secrets
from autogen_codeact.runs.resuming import resumed
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.summary import RunTotals
from autogen_codeact.runs.writer import MAX_LINE, LogLocked
from autogen_codeact.teams.parts import wrap_models
from codeact_sandbox import SandboxDied, SandboxProtocolError, SandboxStartError, SandboxTimeout, SandboxUnavailable
from codeact_sandbox.host.waiting import in_thread

SandboxKind = Literal["auto", "docker", "bubblewrap"]
MAX_READY = 8
ACQUIRE_TIMEOUT_S = 600.0  # seconds that an attempt waits for a sandbox: others may use all that are allowed
MAX_BACKOFF_S = 60.0
_SANDBOX = (SandboxDied, SandboxProtocolError, SandboxStartError, SandboxTimeout, SandboxUnavailable)
_PASSING_STATUS = frozenset({408, 409, 425, 429})
# By name: importing a vendor's package takes long, and it is there if the error is one of its own.
_CONNECTION_ERRORS = frozenset({"APIConnectionError", "TransportError", "ConnectionError"})
AgentOrTeam = ChatAgent | BaseTeam
MakeAgent = Callable[..., Any]
"""Called with an executor, and with the `Task` if it takes a second argument; returns an agent or a team, or awaits one."""
STOP_S = 60.0  # seconds that the end of the sandboxes may take
NO_ANSWER = "the agent ended without an answer"
NOT_WRITTEN = "it could not be written"
USAGE = ("steps", "model_calls", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class BatchContext:
    """What a backend is started with."""

    make_agent: MakeAgent
    kind: SandboxKind
    options: Mapping[str, Any]
    gate: ModelGate
    settings: BatchSettings


def is_retryable(error: BaseException) -> bool:
    """Return whether an attempt that ended with an error may succeed when it is made again.

    What the agent's own code raises, the end of `task_timeout`, and other HTTP errors stay.
    """
    if isinstance(error, (*_SANDBOX, ModelTimeoutError)):
        return True
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        final = getattr(error, "code", None) == "insufficient_quota"
        return not final and (status in _PASSING_STATUS or (status >= 500 and status != 501))
    return any(kind.__name__ in _CONNECTION_ERRORS for kind in type(error).__mro__)


def backoff(backoff_s: float, failures: int) -> float:
    """Return the seconds to wait before the next attempt; what a server says, its client has waited already."""
    delay = min(backoff_s * 2.0 ** min(failures - 1, 30), MAX_BACKOFF_S)
    return delay * random.uniform(0.75, 1.0)  # noqa: S311 - only so that many tasks don't begin again at the same time


async def call_make_agent(make: MakeAgent, executor: CodeExecutor, task: Task) -> AgentOrTeam:
    """Have the caller's function make an agent or a team."""
    second = list(inspect.signature(make).parameters.values())[1:2]
    takes_task = any(parameter.name == "task" or parameter.default is parameter.empty for parameter in second)
    made = make(executor, task) if takes_task else make(executor)
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, ChatAgent | BaseTeam):
        raise UnusableAgentError(f"make_agent has to return an agent or a team, not a {type(made).__name__}")
    return made


@dataclass
class AttemptWork:
    """What is to be done in one attempt; it can be sent to another process.

    Args:
        log: Folder of the run's log, absolute. If there is a log, it is continued.
        work_dir: Folder for the files of the workspace, absolute; it stays until the task has a row.
        count_log: Whether the tokens in the log are not counted for the budget yet: an earlier process has used them.
        has_files: Whether the files of the task are in `work_dir` already.
    """

    task: Task
    log: Path
    work_dir: Path
    repeat: int = 1
    count_log: bool = False
    has_files: bool = False


@dataclass
class LogEnd:
    """What a log says about its run; `stopped`: why it ends before the run did; `last`: the message that is the result."""

    run: str | None = None
    usage: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(USAGE, 0))
    stopped: str | None = NOT_WRITTEN
    last: Any = None
    is_finished: bool = False


def has_begun(path: Path) -> bool:
    """Return whether there is a log in which something may have happened; remove one that has only begun.

    The first two events are the start of the run and its first state: nothing is done before both are on the disk.
    """
    try:
        with open(path / EVENTS, "rb") as file:
            if file.readline(MAX_LINE + 1).endswith(b"\n") and file.readline(MAX_LINE + 1).endswith(b"\n"):
                return True
    except FileNotFoundError:
        if not path.exists():
            return False
    shutil.rmtree(path)
    return False


def read_log(path: Path) -> LogEnd:
    """Read a log from its beginning to its end; one that can't be read was not written."""
    end, totals, last = LogEnd(), RunTotals(), None
    try:
        run = load_run(path)
        end.run = run.started.run
        for line in run.raw_events():
            totals.add(line, run)
            if isinstance(line, RawEvent) and line.name == "message":
                last = line
        counts = (totals.blocks, totals.model_calls, totals.prompt_tokens, totals.completion_tokens)
        end.usage = dict(zip(USAGE, counts, strict=True))
        end.stopped = None if totals.finished is not None else totals.stopped or NOT_WRITTEN
        message = run.parse(last) if last is not None else None
        end.is_finished = totals.finished is not None and totals.finished.outcome == "completed"
        message = run.parse(last) if end.is_finished and last is not None else None
        if isinstance(message, MessageLogged):
            end.last = load_message(message.message, message.content_type)
    except (RunError, OSError):
        end.stopped = NOT_WRITTEN
    return end


class Backend(Protocol):
    async def start(self, context: BatchContext) -> None:
        """Prepare for attempts."""

    async def run(self, work: AttemptWork) -> Row:
        """Run one attempt; several run at the same time. Its log is in `work.log` when this ends, however it ends."""

    async def stop(self) -> None:
        """End everything, also what runs; repeated calls are harmless."""


class Worker:
    """A `Backend` that runs attempts in this process, in sandboxes of a pool."""

    def __init__(self) -> None:
        self.context: BatchContext
        self.in_use: dict[int, str] = {}  # agents that run now, by identity, with the tasks that they work on
        self._pool: ExecutorPool | None = None

    async def start(self, context: BatchContext) -> None:
        """Find out which sandboxes this machine has; the pool begins to start them when the first one is used."""
        self.context, settings = context, context.settings
        most = settings.concurrency
        options: dict[str, Any] = {"mode": "session", **context.options, "backend": context.kind}
        # In a thread: to ask an engine takes some milliseconds.
        self._pool = await asyncio.to_thread(
            ExecutorPool,
            min(most, MAX_READY),
            max_alive=most,
            acquire_timeout=ACQUIRE_TIMEOUT_S,
            **options,
        )

    async def stop(self) -> None:
        """Stop all sandboxes, also those in use."""
        if self._pool is not None:
            await asyncio.gather(self._pool.stop(), return_exceptions=True)

    async def executor(self, *, data: list[str] | None = None, **options: Any) -> SandboxCodeExecutor:
        """Make an executor, not started."""
        assert self._pool is not None, "start() first"
        if not data:
            await self._pool.start()
        pooled = self._pool.executor(**options)
        if not data:
            return pooled
        values = pooled.sandbox.options.values()
        return type(pooled)(**{**values, "data": [*(values.get("data") or ()), *data]})

    async def run(self, work: AttemptWork, gate: ModelGate | None = None) -> Row:
        """Do a task, or continue where its log ends, and check the answer; `gate` takes the place of the context's."""
        attempt = _Attempt(work, self, gate or self.context.gate)
        seconds = self.context.settings.task_timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                return await attempt.run()
        except BatchBudgetError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an agent raises
            cause: Exception = error
            if limit.expired():
                cause = TaskTimeoutError(f"the attempt took longer than {seconds:g} s (task_timeout)")
            raise await attempt.failed(cause) from cause


class _Attempt:
    def __init__(self, work: AttemptWork, worker: Worker, gate: ModelGate) -> None:
        self._work, self._worker, self._gate = work, worker, gate
        self._began = time.monotonic()
        self._started = datetime.now(UTC)
        self._before: LogEnd | None = None
        self._agent: AgentOrTeam | None = None

    async def run(self) -> Row:
        work = self._work
        if await in_thread(prepare, work):
            self._before = await in_thread(read_log, work.log)
        if self._before is not None and work.count_log:
            usage = self._before.usage
            self._gate.used(usage["prompt_tokens"], usage["completion_tokens"])
        if self._before is not None and self._before.is_finished:  # killed after its end, before there was a row
            return await self._finished(self._before.last, self._before)
        try:
            last = await self._run_agent()
        except RunWaiting as waiting:
            return self._row("waiting", await in_thread(read_log, work.log), error=str(waiting))
        return await self._finished(last, await in_thread(read_log, work.log))

    async def failed(self, error: Exception) -> AttemptError:
        """Return what the scheduler has to know about an error."""
        end = await in_thread(read_log, self._work.log)
        secrets = secrets_of(self._agent) if self._agent is not None else known_secrets()
        # A model's server may repeat the key that it refuses.
        text = str(Redaction(secrets).value(str(error)[:MAX_ERROR]))
        return AttemptError(
            self._row("failed", end, error_class=type(error).__name__, error=text),
            retryable=is_retryable(error),
            # The log can't be continued, so that the task needs a new one.
            unusable_log=isinstance(error, RunError | LogLocked | FileExistsError)
            and not isinstance(error, RunIsFinishedError),
        )

    async def _run_agent(self) -> BaseChatMessage | None:
        """Run the agent to its end, and return its last message."""
        work, worker = self._work, self._worker
        async with AsyncExitStack() as opened:
            agent = self._agent = await self._make_agent(opened)
            busy = worker.in_use.setdefault(id(agent), work.task.id)
            if busy != work.task.id:
                raise UnusableAgentError(
                    f"make_agent has returned the agent of task {busy!r}, which is still running: make a new one for each task"
                )
            opened.callback(worker.in_use.pop, id(agent))
            wrap_models([agent], lambda client: GatedClient(client, self._gate))
            stream: AsyncGenerator[Any, None]
            if self._before is not None:
                stream = resumed(work.log, agent=agent)
            else:
                stream = recorded(agent, task=work.task.task, path=work.log)
            async with aclosing(stream) as items:
                async for item in items:
                    if isinstance(item, TaskResult):
                        last = next(
                            (each for each in reversed(item.messages) if isinstance(each, BaseChatMessage)), None
                        )
                        return last if last is not None and last.source != "user" else None  # else it is the task
        return None

    async def _make_agent(self, opened: AsyncExitStack) -> AgentOrTeam:
        work, worker = self._work, self._worker
        executor = await worker.executor(data=work.task.data, work_dir=work.work_dir)
        opened.push_async_callback(_stop, executor)
        await executor.start()
        return await call_make_agent(worker.context.make_agent, executor, work.task)

    def _row(self, outcome: Outcome, end: LogEnd, **more: Any) -> Row:
        row = Row(id=self._work.task.id, repeat=self._work.repeat, outcome=outcome, run=end.run, **end.usage, **more)
        row.started, row.resumed = self._started, int(self._before is not None)
        row.seconds = time.monotonic() - self._began
        return row

    async def _finished(self, last: Any, end: LogEnd) -> Row:
        answer = last.to_text() if last is not None else None
        has_answer = bool(answer and answer.strip())
        row = self._row("completed", end, log_problem=end.stopped)
        if (limit := (last.metadata if last is not None else {}).get("stopped")) is not None:
            row.outcome, row.error_class = "stopped", limit
            row.error = f"the agent reached its limit {limit} before it had an answer"
        elif not has_answer:
            row.outcome, row.error_class, row.error = "stopped", "NoAnswer", NO_ANSWER
        if answer is not None and has_answer:
            row.checks = await check_answer(self._work.task, answer, self._worker)
        row.answer = answer
        row.passed = decide_passed(self._work.task, row.outcome, row.checks)
        row.seconds = time.monotonic() - self._began
        return row


async def _stop(executor: SandboxCodeExecutor) -> None:
    async with asyncio.timeout(STOP_S):
        await executor.stop()


def prepare(work: AttemptWork) -> bool:
    """Make the workspace's folder on the host, with the files of the task; returns whether the run has begun.

    In a run that is continued the workspace is as it was.
    """
    if has_begun(work.log):
        work.work_dir.mkdir(parents=True, exist_ok=True)
        return True
    if work.has_files:
        return False
    folder = work.work_dir
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, source in work.task.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    return False
