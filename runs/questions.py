"""Questions that end a run until a person has answered them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from autogen_codeact.agents.model import cancel_and_wait
from autogen_codeact.runs.answers import MAX_OPEN, Answer, Question, RunWaiting, digest
from autogen_codeact.runs.events import QuestionAnswered, QuestionAsked
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.tools.approval import ToolApprovalRequest

T = TypeVar("T")
MAX_TEXT = 200_000
"""Characters of code or arguments that somebody can judge."""
SETTLE_S = 0.05
_TOO_MUCH = (False, f"nobody can judge more than {MAX_TEXT:,} characters or {MAX_OPEN} questions")


class Questions:
    """The questions of one run."""

    def __init__(self, log: LogWriter, known: Sequence[Question] = ()) -> None:
        self._log = log
        self._all = list(known)
        self._busy: set[object] = set()
        self._ended = asyncio.Event()

    @property
    def open(self) -> list[Question]:
        """Those without an answer."""
        return [each for each in self._all if each.answer is None]

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, because it waits for an answer."""
        return self._ended.is_set()

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
        """What ends the run."""
        return RunWaiting(self._log.folder, self.open)

    async def unless_ended(self, live: Awaitable[T]) -> T:
        """Await code, and end it if the run ends because the code waits for an answer."""
        running, ended = asyncio.ensure_future(live), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise self.waiting
            return await running
        finally:
            await cancel_and_wait(ended)
            await cancel_and_wait(running)

    async def about_code(self, agent: str, number: int, text: str) -> tuple[bool, str]:
        """Return whether the code of a step may run, and why not."""
        question = await self._question(agent, number, None, text)
        if question is None:
            return _TOO_MUCH
        if question.answer is None:
            await self._end()
            raise self.waiting
        return await self._use(question, question.answer)

    async def about_call(self, agent: str, number: int, step: object, request: ToolApprovalRequest) -> tuple[bool, str]:
        """Return whether a call may be made; without an answer the run ends, and this waits until it is cancelled."""
        text = await in_thread(lambda: json.dumps(request.arguments, ensure_ascii=False, indent=2, sort_keys=True))
        question = await self._question(agent, number, request.name, text)
        if question is None:
            return _TOO_MUCH
        if question.answer is not None:
            return await self._use(question, question.answer)
        self.end(step)
        await self._end()
        await asyncio.Event().wait()
        raise AssertionError("the block is ended")

    async def _question(self, agent: str, number: int, tool: str | None, text: str) -> Question | None:
        """Return the question about code or a call, which is asked if it is a new one; None if nobody can judge it."""
        sha256 = digest(tool, text)
        for each in self._all:
            asked = each.asked
            # An approval of code is for this step, one of a call for one call.
            fits = asked.block == number if tool is None else not each.used
            if fits and (asked.agent, asked.tool, asked.sha256) == (agent, tool, sha256):
                return each
        if len(text) > MAX_TEXT or len(self.open) >= MAX_OPEN:
            return None
        name = f"q{len(self._all) + 1}"
        asked = QuestionAsked(question=name, agent=agent, block=number, tool=tool, text=text, sha256=sha256)
        self._all.append(question := Question(asked))
        await self._log.write(asked, sync=True)
        if self._log.stopped is not None:
            raise RuntimeError(f"the question could not be kept: {self._log.stopped}")
        return question

    async def _use(self, question: Question, answer: Answer) -> tuple[bool, str]:
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
        self._ended.set()
