"""The steps of one agent in a run: written to the log, and in a resumed run answered from what it had received."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import takewhile
from typing import Any, TypeVar

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.models import CreateResult
from pydantic import TypeAdapter, ValidationError

from autogen_codeact.agents.journal import Journal, JournalEntry, RecordedCall
from autogen_codeact.agents.step_record import Kind, RunEnded
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.tools.later import NO_LOG
from autogen_codeact.runs.answers import RunWaiting
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.events import BlockFinished, BlockStarted, CodeText, JournalChange, ValueLogged
from autogen_codeact.runs.folder import FileStore, result_record
from autogen_codeact.runs.questions import Questions, StepNumber
from autogen_codeact.runs.reader import first_problem
from autogen_codeact.runs.results import CallRecord, error_info
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox import SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.tools.approval import ToolApprovalRequest
from codeact_sandbox.types.result import ErrorInfo

_BROKEN = {error.__name__: error for error in (SandboxDied, SandboxTimeout, SandboxProtocolError)}
_RAISED = {error.__name__: error for error in (ValueError, NotImplementedError, TimeoutError, RuntimeError, TypeError)}
logger = logging.getLogger("autogen_codeact")
T = TypeVar("T")


class RecordedError(Exception):
    """An exception in the log whose class is not one of the common ones."""


@dataclass(frozen=True)
class ModelAnswer:
    """An answer of a model."""

    request: str
    result: CreateResult | None
    error: ErrorInfo | None = None
    note: str | None = None


@dataclass(frozen=True)
class StepResult:
    """How code ended."""

    number: int
    blocks: list[CodeText]
    result: CodeResult | None
    error: ErrorInfo | None = None
    unknown: bool = False

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


@dataclass(frozen=True)
class Value:
    """Another value from outside the agent."""

    kind: Kind
    value: Any


@dataclass
class AgentHistory:
    """What one agent received before the run was interrupted, according to the log.

    Args:
        items: What it received since the boundary, in order.
        facts: The facts about its sandbox that it received last, as JSON; None if there are none.
    """

    items: deque[ModelAnswer | StepResult | ToolAnswer | Value] = field(default_factory=deque)
    facts: Any = None
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

    agents: dict[str, AgentHistory] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    at_turn: bool = False
    questions: Questions | None = None


Item = TypeVar("Item", ModelAnswer, StepResult, ToolAnswer)


class RunDivergedError(RunError):
    """The resumed agent did something other than the log says, so the log has no answer for it."""


@cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    # Making one takes milliseconds, and there are few kinds of values.
    return TypeAdapter(form)


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


@dataclass(eq=False)
class LoggedStep(StepNumber):
    """A step of an agent, as the log keeps it."""

    token: CancellationToken
    steps: AgentSteps
    began: float = field(default=0.0, init=False)

    async def about_code(self, code: str) -> tuple[bool, str]:
        """Return whether the code may run, or end the run until there is an answer."""
        if self.steps.questions is None:
            raise RuntimeError(NO_LOG)
        return await self.steps.questions.about_code(self, code)

    async def about_call(self, request: ToolApprovalRequest) -> tuple[bool, str]:
        """Return whether a call may be made, or end the run until there is an answer."""
        if self.steps.questions is None:
            raise RuntimeError(NO_LOG)
        return await self.steps.questions.about_call(self, request)

    async def begin(self, blocks: list[CodeBlock]) -> None:
        """Write the code, before it runs."""
        self.steps.history.steps = self.number
        self.began = time.monotonic()
        started = BlockStarted(agent=self.agent, number=self.number, blocks=_texts(blocks))
        await self.log.write(started, sync=True)

    @contextmanager
    def failure_logged(self) -> Iterator[None]:
        """Write that the step ended with an exception, if the body raises one."""
        try:
            yield
        except RunWaiting:
            raise
        except Exception as error:
            self.log.put(BlockFinished(agent=self.agent, number=self.number, error=error_info(error)))
            raise

    def end(self, ended: RunEnded, journal: Journal | None) -> None:
        """Write how the code ended, and how the journal has changed."""
        change, seconds = self.steps.journal.change(journal), time.monotonic() - self.began
        error = error_info(ended.error) if ended.error is not None else None

        def event(files: FileStore) -> BlockFinished:
            finished = BlockFinished(
                agent=self.agent,
                number=self.number,
                result=result_record(ended.result, files),
                error=error,
                duration_s=seconds,
            )
            if change is not None:
                finished.journal, added = change
                finished.journal.added = [
                    {**dict(entry), "calls": [RecordedCall.of(call) for call in entry.calls]} for entry in added
                ]
            return finished

        self.log.put(event, sync=True)


def _texts(blocks: list[CodeBlock]) -> list[CodeText]:
    return [CodeText(code=block.code, language=block.language) for block in blocks]


class AgentSteps:
    """A `StepRecord` of one agent, and the record of its model's answers."""

    def __init__(self, agent: str, log: LogWriter, journal: JournalLog, run: RunHistory) -> None:
        self.agent = agent
        self.log = log
        self.note = run.notes.get(agent)  # what its model is to be told with the next request that it really gets
        self.is_empty = agent in run.emptied  # whether its session is empty, because it was not rebuilt
        self.questions = run.questions  # what `Later` asks; None if nothing waits
        self.journal = journal
        self.history = run.agents.get(agent) or AgentHistory()
        self._calls: set[int] = set()
        self._late: list[Callable[[], Awaitable[object]]] = []

    # Models

    def answer(self, request: str) -> ModelAnswer | None:
        """Return the answer that the model has given before, or None if it has to be asked."""
        return self._take(ModelAnswer, lambda answer: answer.request == request, "asked its model something else")

    def new_call(self) -> int:
        """Return the number of a call that the model really gets."""
        number = max(self.history.calls, *self._calls, 0) + 1
        self._calls.add(number)
        return number

    def call_ended(self, number: int, *, answered: bool) -> None:
        """Note that a call is over; one without an answer or an error does not count."""
        self._calls.discard(number)
        if answered:
            self.history.calls = max(self.history.calls, number)

    async def go_live(self) -> str | None:
        """Do what was postponed while the log answered, and return the note for the model, once."""
        await self._do_late()
        note, self.note = self.note, None
        return note

    # Tools of models

    def tool_answer(self, name: str, arguments: dict[str, Any]) -> ToolAnswer | None:
        """Return how a call of the model has ended before, or None if it has to be made.

        Calls that were made at the same time can be asked for in any order.
        """
        items = self.history.items
        redacted = self.log.redaction.value(arguments)
        for at, item in enumerate(items):
            if not isinstance(item, ToolAnswer):
                break
            if (item.name, item.arguments) == (name, redacted):
                del items[at]
                return item
        if all(isinstance(item, ToolAnswer) for item in items):
            return None
        return self._take(ToolAnswer, lambda _: False, "called another tool")

    async def new_tool_call(self) -> int:
        """Return the number of a call that is really made."""
        await self._do_late()
        self.history.tool_calls += 1
        return self.history.tool_calls

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
            known = result
            self.log.put(
                lambda files: BlockFinished(
                    agent=self.agent,
                    number=step.number,
                    result=result_record(known, files),
                )
            )
        return result, step.broke

    @asynccontextmanager
    async def step(self, token: CancellationToken) -> AsyncIterator[LoggedStep]:
        """Return a step in which code is about to run."""
        await self._do_late()
        # Before the code is asked about: if the run ends meanwhile, the code has not run, and is asked about again.
        await self.log.flush()
        step = LoggedStep(self.log, self.agent, self.history.steps + 1, token, self)
        if (questions := self.questions) is None:
            yield step
            return
        step.token = CancellationToken()
        token.add_callback(step.token.cancel)
        with questions.busy(step):
            async with questions.cancelling(step.token):
                yield step

    # Other values

    async def value(self, kind: Kind, get: Callable[[], Awaitable[T]], form: Any) -> T:
        """Return a value from outside."""
        adapter: TypeAdapter[T] = _adapter(form)
        items = self.history.items
        if items:
            if kind == "facts" and self.history.facts is not None:
                return _valid(adapter, self.history.facts, kind)
            first = items[0]
            if isinstance(first, Value) and first.kind == kind:
                items.popleft()
                if kind == "file":
                    self._late.append(get)
                return _valid(adapter, first.value, kind)
            if kind == "rebuild":
                return adapter.validate_python(None)
        got = await get()
        if kind != "rebuild" or got is not None:
            dump = partial(adapter.dump_python, got, mode="json")
            self.log.put(lambda _: ValueLogged(agent=self.agent, kind=kind, value=dump()))
        return got

    # Answers from the log

    async def _do_late(self) -> None:
        while self._late:
            await self._late.pop(0)()

    def _take(self, kind: type[Item], fits: Callable[[Item], bool], otherwise: str) -> Item | None:
        items = self.history.items
        while items and isinstance(items[0], Value):
            items.popleft()
        if not items:
            return None
        item = items[0]
        if isinstance(item, kind) and fits(item):
            items.popleft()
            return item
        if any(isinstance(each, StepResult | ToolAnswer) for each in items):
            raise RunDivergedError(
                f"The run can't be continued: {self.agent!r} {otherwise} than in the log, so its code or its options are not "
                "what they were. Continue it with the same program, or begin a new run."
            )
        # Nothing but answers of the model is lost, and it is asked again.
        logger.warning("%s %s than in the log; the model is asked again from there", self.agent, otherwise)
        items.clear()
        return None


def _valid(adapter: TypeAdapter[T], value: object, kind: Kind) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise RunDivergedError(
            f"The run can't be continued: a value of kind {kind!r} in its log is damaged ({first_problem(error)})."
        ) from None
