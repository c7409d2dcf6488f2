"""A run that is open in the viewer: its log is read in threads, as far as pages ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, TypeVar

from autogen_codeact.runs.errors import RunError
from autogen_codeact.viewer.control import RunControl
from autogen_codeact.viewer.kept_questions import KeptQuestions
from autogen_codeact.viewer.schema import Document
from autogen_codeact.viewer.steps import RunSteps

POLL_S = 0.15
_ANSWER_S = 10.0
_START_S = 20.0
_MAX_AT_ONCE = 500
_FIRST_BYTES = 512 * 1024
"""What is read of a log before the first answer."""
T = TypeVar("T")


class OpenRun:
    """A run that is open in at least one page."""

    def __init__(self, path: Path, name: str, control: RunControl | None) -> None:
        self._path = path
        self._name = name
        self.control = control
        """What its buttons do, or None."""
        self.kept = KeptQuestions(path)
        """The questions in its log."""
        self.waiting = 0
        """Number of pages that wait for changes."""
        self._steps: RunSteps | None = None
        self._lock = asyncio.Lock()
        self._closing = False

    async def call(self, function: Callable[[RunSteps], T]) -> T:
        """Call a function with the run in a thread."""
        async with self._lock:
            if self._steps is None:
                self._steps = await self._opened()
                await asyncio.to_thread(self._steps.view.read, _FIRST_BYTES)
            return await asyncio.to_thread(function, self._steps)

    async def _opened(self) -> RunSteps:
        deadline = asyncio.get_running_loop().time() + (_START_S if self.control is not None else 0)
        while True:
            try:
                return await asyncio.to_thread(RunSteps, self._path, self._name)
            except RunError:
                # The page of a run can be open before its first line is written.
                if asyncio.get_running_loop().time() > deadline or self._closing:
                    raise
                await asyncio.sleep(POLL_S)

    async def header(self) -> Document:
        """Return the header of the run, as far as its log has been read."""
        header = await self.call(RunSteps.header)
        header["controls"] = self.control is not None if header["live"] else bool(await self._questions(header))
        return header

    async def _questions(self, header: Document) -> list[Document]:
        if header["live"]:
            return self.control.questions if self.control is not None else []
        return await asyncio.to_thread(self.kept.documents) if header["outcome"] == "waiting" else []

    async def read_to(self, number: int) -> None:
        """Read on in the log until a step is known, or to the present end."""
        until = asyncio.get_running_loop().time() + _ANSWER_S
        known = await self.call(lambda steps: len(steps) >= number)
        while not known and asyncio.get_running_loop().time() < until and not self._closing:
            known = await self.call(lambda steps: _read_on(steps) or len(steps) >= number)

    async def changes(self, since: int, known: Set[int]) -> Document:
        """Return what is new, as soon as something is, or after a while."""
        until = asyncio.get_running_loop().time() + _ANSWER_S
        self.waiting += 1
        try:
            while True:
                revision, summaries = await self.call(lambda steps: _changed(steps, since))
                header = await self.header()
                questions = await self._questions(header)
                ended = header["indexed"] and not header["live"] and not questions
                news = summaries or ended or {each["id"] for each in questions} != known
                if news or self._closing or asyncio.get_running_loop().time() > until:
                    header["revision"] = revision
                    return {"header": header, "summaries": summaries, "questions": questions}
                await asyncio.sleep(POLL_S)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Have pages wait no longer."""
        self._closing = True


def _read_on(steps: RunSteps) -> bool:
    """Read a part of the log; return whether that was all of it."""
    steps.view.read()
    return steps.view.indexed


def _changed(steps: RunSteps, since: int) -> tuple[int, list[Any]]:
    """Read on; return summaries of the steps that have changed, the oldest changes first, and the last revision among them."""
    steps.view.read()
    changed = steps.changed_since(since)[:_MAX_AT_ONCE]
    revision = changed[-1][0] if changed else since
    return revision, [summary for _, number in changed for summary in steps.summaries(number, number)]
