"""The buttons of a live run's page: approve or refuse code and calls of tools, and stop the run."""

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

from autogen_codeact.runs.text import bounded
from autogen_codeact.viewer.schema import Document
from codeact_sandbox.tools.question_text import arguments_text, shown_whole


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
        """All arguments as JSON, or None."""
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
        """Whether somebody has asked to stop the run."""

    @property
    def questions(self) -> list[Document]:
        """The questions that wait for an answer."""
        with self._lock:
            return [question.document(number) for number, (question, _) in self._open.items()]

    async def ask(self, question: ApprovalQuestion) -> bool:
        """Ask on the page, and return the first answer.

        A cancellation withdraws the question, for example because it was answered elsewhere.

        Args:
            question: The question.

        Raises:
            ValueError: It is too long to be shown: nobody should approve what they have not seen.
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
