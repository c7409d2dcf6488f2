"""Records of calls to host tools: the intent before a call is made, the result before the code sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from autogen_codeact.runs.events import HostCallFinished, HostCallStarted
from autogen_codeact.runs.files import FileStore
from autogen_codeact.runs.questions import Questions
from autogen_codeact.runs.results import CallRecord
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox.tools.approval import ToolApprovalRequest
from codeact_sandbox.types.observers import CallFinished, CallIntent


@dataclass(eq=False)
class Step:
    """A step of an agent that runs code."""

    log: LogWriter
    agent: str
    number: int
    calls: int = 0


@dataclass
class StepQuestions:
    """The questions of one step of an agent: what `Later` asks."""

    questions: Questions
    step: Step
    code: str | None
    answer: tuple[bool, str]

    def about_code(self, code: str) -> tuple[bool, str] | None:
        """Return the answer about the code of the step; None for other code, as of an agent in a host tool."""
        return self.answer if code == self.code else None

    async def about_call(self, request: ToolApprovalRequest) -> tuple[bool, str]:
        """Ask about a call."""
        return await self.questions.about_call(self.step.agent, self.step.number, self.step, request)


# Calls to host tools are recorded by what is attached to the executor, which several agents and runs may share. Such a call runs
# in the context of the block that makes it.
CURRENT_STEP: ContextVar[Step | None] = ContextVar("CURRENT_STEP", default=None)

Key = tuple[str, int, int]
MakeFinished = Callable[[FileStore], HostCallFinished]


class CallRecorder:
    """Writes the calls to host tools of one run into its log; a `Recorder` of the sandbox."""

    def __init__(self, log: LogWriter, questions: Questions | None = None) -> None:
        self._log = log
        self._questions = questions
        self._outside = Step(log, "", 0)
        self._started: dict[Key, tuple[Step, int]] = {}

    async def call_starting(self, intent: CallIntent) -> None:
        """Write that a call is about to be made; it is on the disk when this returns, unless the tool is idempotent."""
        if (counted := self._count()) is None:
            return
        step, number = self._started[_key(intent)] = counted
        event = HostCallStarted(
            agent=step.agent,
            block=step.number,
            call=number,
            name=intent.name,
            arguments=dict(intent.arguments),
            idempotent=intent.idempotent,
        )
        await self._write(event, intent)
        if self._questions is not None:
            self._questions.begin(_key(intent))

    async def call_finished(self, finished: CallFinished) -> None:
        """Write how a call ended; it is on the disk when this returns, unless the tool is idempotent."""
        if self._questions is not None:
            self._questions.end(_key(finished.intent))
        counted = self._started.pop(_key(finished.intent), None) or self._count()
        if counted is None:
            return
        step, number = counted

        def event(files: FileStore) -> HostCallFinished:
            record = CallRecord.of(finished.call, files.put)
            return HostCallFinished(agent=step.agent, block=step.number, call=number, record=record)

        await self._write(event, finished.intent)

    async def _write(self, event: HostCallStarted | MakeFinished, intent: CallIntent) -> None:
        if intent.idempotent:
            self._log.put(event)
            await self._log.keep_up()
        else:
            await self._log.write(event, sync=True)

    def _count(self) -> tuple[Step, int] | None:
        """Count a call of the step that makes calls in this context; None if it belongs to another run."""
        step = CURRENT_STEP.get() or self._outside
        if step.log is not self._log:
            return None
        step.calls += 1
        return step, step.calls


def _key(intent: CallIntent) -> Key:
    return intent.block.sandbox, intent.block.block, intent.number
