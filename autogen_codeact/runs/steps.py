"""The steps of one agent in a run: written to the log, and in a resumed run answered from what it had received."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeVar

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.models import CreateResult
from pydantic import TypeAdapter, ValidationError

from autogen_codeact.agents.journal import Journal, JournalEntry, RecordedCall
from autogen_codeact.agents.replay import Replay
from autogen_codeact.agents.step_record import RunEnded
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.answers import RunWaiting
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    CodeText,
    HostCallFinished,
    HostCallStarted,
    JournalChange,
    SessionRebuilt,
)
from autogen_codeact.runs.folder import FileStore, result_record
from autogen_codeact.runs.questions import LoggedStep, Questions
from autogen_codeact.runs.reader import first_problem
from autogen_codeact.runs.results import CallRecord, error_info
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox import SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.types.result import ErrorInfo

_BROKEN = {error.__name__: error for error in (SandboxDied, SandboxTimeout, SandboxProtocolError)}
_RAISED = {error.__name__: error for error in (ValueError, NotImplementedError, TimeoutError, RuntimeError, TypeError)}
logger = logging.getLogger("autogen_codeact")


class RecordedError(Exception):
    """An exception in the log whose class is not one of the common ones."""


@dataclass(frozen=True)
class ModelAnswer:
    request: str
    result: CreateResult | None
    error: ErrorInfo | None = None
    note: str | None = None


@dataclass
class StepResult:
    """How code ended.

    Args:
        unknown: Whether the process ended while it ran.
        finished: What the log says of its end.
        calls: What the log says of its calls to host tools.
    """

    number: int
    blocks: list[CodeText]
    result: CodeResult | None = None
    error: ErrorInfo | None = None
    unknown: bool = False
    finished: BlockFinished | None = None
    calls: dict[int, HostCallStarted | HostCallFinished] = field(default_factory=dict)

    @property
    def broke(self) -> SandboxError | None:
        """How the sandbox broke, or None."""
        if self.error is None or self.error.type not in _BROKEN:
            return None
        return _BROKEN[self.error.type](self.error.message)


@dataclass
class ToolAnswer:
    """The result of a tool call that the model of an `AssistantAgent` made."""

    name: str
    arguments: dict[str, Any]
    record: CallRecord | None = None  # None if the process ended during the call


Item = ModelAnswer | StepResult | ToolAnswer
T = TypeVar("T", ModelAnswer, StepResult, ToolAnswer)


@dataclass
class AgentHistory:
    """What one agent received before the run was interrupted, according to the log.

    Args:
        items: What it received since the boundary.
        rebuilt: How its session was rebuilt since the boundary, as JSON.
        answers: How many answers its model has given in the whole run.
        calls: Number of the last call of its model; the same for steps and calls to tools.
    """

    items: list[Item] = field(default_factory=list)
    rebuilt: list[Any] = field(default_factory=list)
    answers: int = 0
    calls: int = 0
    steps: int = 0
    tool_calls: int = 0


def to_exception(error: ErrorInfo) -> Exception:
    """Return the exception of a record: of its own class if that is a common one, else a `RecordedError`."""
    return _RAISED.get(error.type, RecordedError)(error.message)


@dataclass
class RunHistory:
    """What the agents of a run received before it was interrupted, by their names in the log.

    Args:
        notes: What to tell the model of each agent about the resumed run.
        at_turn: Whether the run continues at a boundary between two turns of a team.
    """

    questions: Questions
    agents: dict[str, AgentHistory] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    at_turn: bool = False


class RunDivergedError(RunError):
    """The resumed agent did something other than the log says, so the log has no answer for it."""


class JournalLog:
    """Finds out how the journal of one executor's session has changed since it was last written."""

    def __init__(self, executor: int) -> None:
        self._executor = executor
        self._session: str | None = None
        self._entries: list[JournalEntry] = []

    def change(self, journal: Journal | None) -> tuple[JournalChange, list[JournalEntry]] | None:
        """Return the change without the entries that were added, and these."""
        if journal is None:
            return None
        pairs = zip(self._entries, journal.entries, strict=False) if journal.session == self._session else ()
        keep = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        self._session, self._entries = journal.session, list(journal.entries)
        change = JournalChange(
            executor=self._executor,
            session=journal.session,
            keep=keep,
            left_out=journal.left_out,
            unrecorded=journal.unrecorded,
        )
        return change, self._entries[keep:]


class AgentSteps:
    """A `StepRecord` of one agent, and the record of its model's answers."""

    def __init__(self, agent: str, log: LogWriter, journal: JournalLog, run: RunHistory) -> None:
        self.agent = agent
        self.log = log
        self.note = run.notes.get(agent)  # what its model is to be told with the next request that it really gets
        self.is_empty = agent in run.emptied  # whether its session is empty, because it was not rebuilt
        self.questions = run.questions
        self.journal = journal
        self.history = run.agents.get(agent) or AgentHistory()

    # Models

    def answer(self, request: str) -> ModelAnswer | None:
        """Return the answer that the model has given before, or None if it has to be asked."""
        return self._take(ModelAnswer, lambda answer: answer.request == request, "asked its model something else")

    # Tools of models

    def tool_answer(self, name: str, arguments: dict[str, Any]) -> ToolAnswer | None:
        """Return how a call of the model has ended before, or None if it has to be made."""
        call = name, self.log.redaction.value(arguments)
        return self._take(ToolAnswer, lambda item: (item.name, item.arguments) == call, "called another tool")

    # Code

    def recorded(self, blocks: list[CodeBlock], *, in_session: bool) -> tuple[CodeResult, SandboxError | None] | None:
        """Return how the code of a step ended before, or None if it has to be run."""
        code = _texts(blocks)
        step = self._take(StepResult, lambda step: step.blocks == code, "wanted to run other code")
        if step is None:
            return None
        if (result := step.result) is None:
            raise to_exception(step.error or ErrorInfo(type="RuntimeError", message="the log has no result"))
        if step.unknown:
            if in_session and isinstance(result, ExecutionResult):
                result = replace(result, state="lost" if self.is_empty else "restored")
            self._finished(step.number, RunEnded(result))
        return result, step.broke

    async def run(
        self,
        blocks: list[CodeBlock],
        token: CancellationToken,
        approve: Callable[[LoggedStep], Awaitable[RunEnded | None]] | None,
        execute: Callable[[LoggedStep], Awaitable[RunEnded]],
        journal: Callable[[], Journal | None],
    ) -> RunEnded:
        """Have code approved and run, and write both."""
        async with self._step(token) as step:
            refused = await approve(step) if approve is not None else None
            self.history.steps = step.number
            began = time.monotonic()
            started = BlockStarted(agent=self.agent, number=step.number, blocks=_texts(blocks))
            await self.log.write(started, sync=True)
            try:
                ended = refused or await execute(step)
            except RunWaiting:
                raise
            except Exception as error:
                self.log.put(BlockFinished(agent=self.agent, number=step.number, error=error_info(error)))
                raise
            finally:
                step.end_output()
            self._finished(step.number, ended, time.monotonic() - began, self.journal.change(journal()))
        return ended

    @asynccontextmanager
    async def _step(self, token: CancellationToken) -> AsyncIterator[LoggedStep]:
        # Before the code is asked about: if the run ends meanwhile, the code has not run, and is asked about again.
        await self.log.flush()
        inner = CancellationToken()
        token.add_callback(inner.cancel)
        step = LoggedStep(self.log, self.questions, self.agent, self.history.steps + 1, inner)
        with self.questions.busy(step):
            async with self.questions.cancelling(inner):
                yield step

    def _finished(
        self,
        number: int,
        ended: RunEnded,
        seconds: float = 0.0,
        change: tuple[JournalChange, list[JournalEntry]] | None = None,
    ) -> None:
        """Write how code has ended, and how the journal has changed."""

        def event(files: FileStore) -> BlockFinished:
            finished = BlockFinished(
                agent=self.agent,
                number=number,
                result=result_record(ended.result, files),
                error=error_info(ended.error) if ended.error is not None else None,
                duration_s=seconds,
            )
            if change is not None:
                finished.journal, added = change
                finished.journal.added = [
                    {**dict(entry), "calls": [RecordedCall.of(call) for call in entry.calls]} for entry in added
                ]
            return finished

        self.log.put(event, sync=True)

    async def rebuilt(self, rebuild: Callable[[], Awaitable[Replay | None]]) -> Replay | None:
        """Return how the session was rebuilt, or rebuild it."""
        if self.history.rebuilt:
            return _replay(self.history.rebuilt.pop(0))
        if self.history.items:
            return None
        made = await rebuild()
        if made is not None:
            self.log.put(SessionRebuilt(agent=self.agent, outcome=vars(made)))
        return made

    # Answers from the log

    def _take(self, kind: type[T], fits: Callable[[T], bool], otherwise: str) -> T | None:
        """Return an answer, whatever the order in which agents ask; None if there is none."""
        items = self.history.items
        for at, item in enumerate(items):
            if isinstance(item, kind) and fits(item):
                del items[at]
                return item
        if kind is ToolAnswer and all(isinstance(item, ToolAnswer) for item in items):
            return None  # of calls that began at the same time, not all are in the log
        if any(isinstance(each, StepResult | ToolAnswer) for each in items):
            raise RunDivergedError(
                f"The run can't be continued: {self.agent!r} {otherwise} than in the log, so its code or its options are not "
                "what they were. Continue it with the same program, or begin a new run."
            )
        if items:
            # Nothing but answers of the model is lost, and it is asked again.
            logger.warning("%s %s than in the log; the model is asked again from there", self.agent, otherwise)
            items.clear()
        return None


def _texts(blocks: list[CodeBlock]) -> list[CodeText]:
    return [CodeText(code=block.code, language=block.language) for block in blocks]


def _replay(outcome: object) -> Replay:
    try:
        return TypeAdapter(Replay).validate_python(outcome)
    except ValidationError as error:
        raise RunDivergedError(f"The log has a wrong value for the rebuilt session: {first_problem(error)}.") from None
