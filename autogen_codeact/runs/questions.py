"""Questions that end a run until a person has answered them, and records of calls to host tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken

from autogen_codeact.agents.code_runner import OUTPUT_CHUNK
from autogen_codeact.executors.tools.later import NO_LOG
from autogen_codeact.runs.answers import MAX_OPEN, Question, RunWaiting, digest
from autogen_codeact.runs.events import ChunkLogged, HostCallFinished, HostCallStarted, QuestionAnswered, QuestionAsked
from autogen_codeact.runs.folder import FileStore
from autogen_codeact.runs.results import CallRecord
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.tools.approval import ToolApprovalRequest
from codeact_sandbox.tools.question_text import MAX_SHOWN, arguments_text, can_be_shown
from codeact_sandbox.types.observers import CallFinished, CallIntent

SETTLE_S = 0.05
OUTPUT_S = 0.5  # what code prints in this time is one event
_TOO_MUCH = (False, f"more than {MAX_SHOWN:,} characters or {MAX_OPEN} questions can't be judged")
Key = tuple[str, int, int]
MakeFinished = Callable[[FileStore], HostCallFinished]


class Questions:
    """The questions of one run.

    Args:
        log: The run's log.
        known: Those of a run that is continued.
        can_wait: Whether the run can end to wait for an answer; a conversation can't.
    """

    def __init__(self, log: LogWriter, known: Sequence[Question] = (), *, can_wait: bool = True) -> None:
        self._log = log
        self._all = list(known)
        self._can_wait = can_wait
        self._busy: set[object] = set()
        self._tokens: list[CancellationToken] = []
        self.has_ended = False
        """Whether the run has ended, because it waits for an answer."""

    @property
    def open(self) -> list[Question]:
        """Those without an answer."""
        return [each for each in self._all if each.answer is None]

    @contextmanager
    def busy(self, who: object) -> Iterator[None]:
        """Let the run not end while the body runs: a call of a model, or code, unless it waits for an answer itself."""
        self.begin(who)
        try:
            yield
        finally:
            self.end(who)

    def begin(self, who: object) -> None:
        """Let the run not end until the `end` of this."""
        if self.has_ended:
            raise self.waiting
        self._busy.add(who)

    def end(self, who: object) -> None:
        """Let the run end if it has to wait."""
        self._busy.discard(who)

    @property
    def waiting(self) -> RunWaiting:
        return RunWaiting(self._log.folder, self.open)

    @asynccontextmanager
    async def cancelling(self, token: CancellationToken) -> AsyncIterator[None]:
        """Cancel a token if the run ends inside because something waits for an answer; then that is what ends the body."""
        self._tokens.append(token)
        try:
            yield
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if not self.has_ended or (me is not None and me.cancelling()):
                raise
            raise self.waiting from None
        finally:
            self._tokens.remove(token)

    async def ask(self, step: LoggedStep, tool: str | None, text: str) -> tuple[bool, str] | None:
        """Return whether code may run or a tool may be called, and why not; None if the run has ended to wait for that."""
        question = await self._question(step.agent, step.number, tool, text)
        if question is None:
            return _TOO_MUCH
        if question.answer is not None:
            return await self._use(question, question.answer)
        self.end(step)
        await self._end()
        return None

    async def _question(self, agent: str, number: int, tool: str | None, text: str) -> Question | None:
        """Return the question about code or a call, which is asked if it is a new one; None if it can't be judged."""
        if not self._can_wait:
            raise RuntimeError(NO_LOG)
        sha256 = digest(tool, text)
        for each in self._all:
            asked = each.asked
            # An approval of code is for this step, one of a call for one call.
            fits = asked.block == number if tool is None else not each.used
            if fits and (asked.agent, asked.tool, asked.sha256) == (agent, tool, sha256):
                return each
        if len(self.open) >= MAX_OPEN or not can_be_shown(text):
            return None
        name = f"q{len(self._all) + 1}"
        asked = QuestionAsked(question=name, agent=agent, block=number, tool=tool, text=text, sha256=sha256)
        self._all.append(question := Question(asked))
        await self._log.write(asked, sync=True)
        if self._log.stopped is not None:
            raise RuntimeError(f"the question could not be kept: {self._log.stopped}")
        return question

    async def _use(self, question: Question, answer: QuestionAnswered) -> tuple[bool, str]:
        if not question.used:
            question.used = True
            name = question.asked.question
            event = QuestionAnswered(question=name, approved=answer.approved, reason=answer.reason)
            await self._log.write(event, sync=True)
        return answer.approved, "" if answer.approved else f"the person said no{answer.reason and f': {answer.reason}'}"

    async def _end(self) -> None:
        """End the run as soon as nothing else of it is under way: other agents may go on, and may ask, too."""
        await asyncio.sleep(SETTLE_S)
        while self._busy and not self.has_ended:  # noqa: ASYNC110 - of many agents
            await asyncio.sleep(SETTLE_S)
        self.has_ended = True
        for token in self._tokens:
            token.cancel()


@dataclass(eq=False)
class LoggedStep:
    """A step of an agent that runs code, as the log keeps it, and how many calls to host tools it has made."""

    log: LogWriter
    questions: Questions
    agent: str = ""
    number: int = 0
    token: CancellationToken = field(default_factory=CancellationToken)
    calls: int = field(default=0, init=False)
    _printed: list[str] = field(default_factory=list, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def output(self, text: str) -> None:
        """Write what the code has printed, if it goes on for a moment: its result has all of it."""
        self._printed.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(OUTPUT_S, self._log_output)

    def end_output(self) -> None:
        """Write no more: the code has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _log_output(self) -> None:
        text, self._printed, self._timer = "".join(self._printed), [], None
        chunk = ModelClientStreamingChunkEvent(content=text, source=self.agent, metadata=OUTPUT_CHUNK)
        self.log.put(ChunkLogged(message=dict(chunk.dump())))

    async def about_code(self, code: str) -> tuple[bool, str]:
        """Return whether the code may run, and why not; without an answer the run ends."""
        answer = await self.questions.ask(self, None, code)
        if answer is None:
            raise self.questions.waiting
        return answer

    async def about_call(self, request: ToolApprovalRequest) -> tuple[bool, str]:
        """Return whether a call may be made, and why not; without an answer the run ends, which cancels the call."""
        text = await in_thread(arguments_text, request.arguments)
        answer = await self.questions.ask(self, request.name, text)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError("the block is ended")
        return answer


class CallRecorder:
    """Writes the calls to host tools of one run into its log; a `Recorder` of the sandbox."""

    def __init__(self, log: LogWriter, questions: Questions) -> None:
        self._log = log
        self._questions = questions
        self._outside = LoggedStep(log, questions)
        self._started: dict[Key, tuple[LoggedStep, int]] = {}

    async def call_starting(self, intent: CallIntent) -> None:
        """Write that a call is about to be made; it is on the disk when this returns, unless the tool is idempotent."""
        if (counted := self._count(intent)) is None:
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
        self._questions.begin(_key(intent))

    async def call_finished(self, finished: CallFinished) -> None:
        """Write how a call ended; it is on the disk when this returns, unless the tool is idempotent."""
        self._questions.end(_key(finished.intent))
        counted = self._started.pop(_key(finished.intent), None) or self._count(finished.intent)
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

    def _count(self, intent: CallIntent) -> tuple[LoggedStep, int] | None:
        """Count a call of a step; None if it belongs to another run."""
        step = intent.origin if isinstance(intent.origin, LoggedStep) else self._outside
        if step.log is not self._log:
            return None
        step.calls += 1
        return step, step.calls


def _key(intent: CallIntent) -> Key:
    return intent.block.sandbox, intent.block.block, intent.number
