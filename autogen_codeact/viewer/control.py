"""What a run asks on its page, live or in its log, and the button that stops it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autogen_codeact.runs.answers import ANSWERS, Question, digest
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.plan import answered, make_plan
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.text import bounded
from autogen_codeact.viewer.documents import Document
from codeact_sandbox.tools.question_text import arguments_text, shown_whole

_MAX_AT_ONCE = 10
_FIRST = 1_000_000
"""Before their numbers: a click on a question of a live run answers none of these."""


@dataclass(frozen=True)
class ApprovalQuestion:
    """Whether code may call a tool, or may run.

    Args:
        kind: `call` of a tool, or `code` that is to run.
        text: What is asked, or the code.
        tool: The tool, or None.
        arguments: The call's arguments by name, or as JSON text, or None.
        agent: Whose code it is, if that is known.
    """

    kind: Literal["call", "code"]
    text: str
    tool: str | None = None
    arguments: Any = None
    agent: str | None = None

    @property
    def arguments_text(self) -> str | None:
        if self.arguments is None:
            return None
        is_text = isinstance(self.arguments, str)
        return shown_whole(self.arguments if is_text else arguments_text(self.arguments))

    def document(self, number: int) -> Document:
        """Return the question as the page gets it."""
        return {
            "id": number,
            "agent": bounded(self.agent, 200) if self.agent is not None else None,
            "kind": self.kind,
            "tool": bounded(self.tool, 200) if self.tool is not None else None,
            "arguments": self.arguments_text,
            "text": shown_whole(self.text),
        }


class RunControl:
    """The buttons of a live run's page. The page is served in another thread; all methods can be called from any.

    Args:
        run: The run's folder, which may not exist yet.
        stop: Called in the event loop of the run when a user stops it, such as `cancellation_token.cancel`.
    """

    def __init__(self, run: Path | str, stop: Callable[[], object]) -> None:
        self.run = Path(run)
        """The run's folder."""
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[ApprovalQuestion, Future[bool]]] = {}
        self.stopped = False
        """Whether a user has asked to stop the run."""

    @property
    def questions(self) -> list[Document]:
        with self._lock:
            return [question.document(number) for number, (question, _) in self._open.items()]

    async def ask(self, question: ApprovalQuestion) -> bool:
        """Ask on the page, and return the first answer.

        A cancellation withdraws the question, for example because it was answered elsewhere.

        Args:
            question: The question.

        Raises:
            ValueError: It is too long to be shown, and must not be approved unseen.
        """
        question.document(0)
        answer: Future[bool] = Future()
        with self._lock:
            number = next(self._numbers)
            self._open[number] = (question, answer)
        try:
            return await asyncio.wrap_future(answer)
        finally:
            with self._lock:
                self._open.pop(number, None)

    def answer(self, number: int, *, approve: bool) -> bool:
        """Answer a question.

        Args:
            number: Its `id`.
            approve: The answer.

        Returns:
            Whether it was still open: the first answer counts.
        """
        with self._lock:
            _, waiting = self._open.pop(number, (None, None))
        if waiting is None or not waiting.set_running_or_notify_cancel():
            return False
        waiting.set_result(approve)
        return True

    def stop(self) -> None:
        """End the run. What runs then is cancelled."""
        self.stopped = True
        with suppress(RuntimeError):  # its loop has ended, and so has the run
            self._loop.call_soon_threadsafe(self._stop)


class KeptQuestions:
    """The open questions of one run; the methods read files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._documents: list[Document] = []
        self._shown: dict[str, str] = {}
        """Digests of what was shown first, by the names of questions: an answer is about that, also if the log changes."""

    def documents(self) -> list[Document]:
        """Return the first questions without an answer, as the page gets them."""
        try:
            answers = self._path / ANSWERS
            now = (self._path / EVENTS).stat().st_size, answers.stat().st_mtime_ns if answers.exists() else 0
            if now != self._read:
                known = make_plan(self._path).open_questions
                self._documents, self._read = [], now
                for each in known[:_MAX_AT_ONCE]:
                    with suppress(ValueError):  # it can't be shown whole
                        self._documents.append(_document(each))
                        self._shown.setdefault(each.asked.question, digest(each.asked.tool, each.asked.text))
        except (RunError, OSError, RecursionError):
            return []
        return self._documents

    def answer(self, number: int, *, approve: bool) -> bool:
        """Answer a question; return whether it was still open, and can be answered."""
        name = f"q{number - _FIRST}"
        try:
            plan = make_plan(self._path)
            asked = {each.asked.question: each.asked.sha256 for each in plan.questions}
            if asked.get(name) != self._shown.get(name):
                return False
            answered(plan, {name: approve})
        except RunError:
            return False
        return True


def _document(question: Question) -> Document:
    asked = question.asked
    if asked.tool is None:
        shown = ApprovalQuestion("code", asked.text, agent=asked.agent)
    else:
        shown = ApprovalQuestion("call", "", asked.tool, asked.text, asked.agent)
    return shown.document(_FIRST + int(asked.question[1:]))
