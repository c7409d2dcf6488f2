"""A run that is open in the viewer: its log is read in threads, and live pages are told about changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from autogen_codeact.runs.errors import RunError
from autogen_codeact.viewer.control import QuestionDocument, RunControl
from autogen_codeact.viewer.schema import RunHeader
from autogen_codeact.viewer.steps import RunSteps

POLL_S = 0.15
_HEARTBEAT_S = 15.0
_IDLE_S = 30.0
_MAX_AT_ONCE = 500
_START_S = 20.0
_FIRST_BYTES = 512 * 1024
"""What is read of a log before the first answer."""
T = TypeVar("T")


class Watcher:
    """What one live page has not received yet.

    Args:
        revision: The last change of a step that the reader knows.
    """

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.wake = asyncio.Event()
        self.questions: dict[int, QuestionDocument] = {}

    def ask(self, question: QuestionDocument) -> None:
        """Note a question, or that it was withdrawn."""
        self.questions[question["id"]] = question
        self.wake.set()


class OpenRun:
    """A run that is open in at least one page.

    Args:
        path: Its folder.
        name: Its `id`.
        control: What its buttons do, or None.
    """

    def __init__(self, path: Path, name: str, control: RunControl | None) -> None:
        self._path = path
        self._name = name
        self.control = control
        """What its buttons do, or None."""
        self._steps: RunSteps | None = None
        self._lock = asyncio.Lock()
        self._watchers: set[Watcher] = set()
        self._follower: asyncio.Task[None] | None = None
        self._used = 0.0
        self._closing = asyncio.Event()
        self._progress = asyncio.Condition()

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches it live."""
        return bool(self._watchers)

    async def call(self, function: Callable[[RunSteps], T]) -> T:
        """Call a function with the run in a thread.

        Args:
            function: The function.

        Raises:
            RunError: The run can't be read.
        """
        async with self._lock:
            if self._steps is None:
                self._steps = await self._opened()
                await asyncio.to_thread(self._steps.read, _FIRST_BYTES)
            result = await asyncio.to_thread(function, self._steps)
        self._follow()
        return result

    async def _opened(self) -> RunSteps:
        deadline = asyncio.get_running_loop().time() + (_START_S if self.control is not None else 0)
        while True:
            try:
                return await asyncio.to_thread(RunSteps, self._path, self._name)
            except RunError:
                # The page of a run can be open before its first line is written.
                if asyncio.get_running_loop().time() > deadline or self._closing.is_set():
                    raise
                await asyncio.sleep(POLL_S)

    async def header(self) -> RunHeader:
        """Return the header of the run, as far as its log has been read."""
        header = await self.call(RunSteps.header)
        header["controls"] = self.control is not None and header["live"]
        return header

    async def wait_for(self, number: int, limit_s: float = 10.0) -> None:
        """Wait until the log is read up to a step, or to its end.

        Args:
            number: The step's number.
            limit_s: Seconds to wait at most.
        """
        steps = self._steps
        if steps is None or steps.indexed or len(steps) >= number:
            return
        self._follow()
        try:
            async with asyncio.timeout(limit_s), self._progress:
                await self._progress.wait_for(lambda: steps.indexed or len(steps) >= number or self._closing.is_set())
        except TimeoutError:
            pass

    async def close(self) -> None:
        """End what follows the log, and the streams of all who watch it."""
        self._closing.set()
        self._wake_all()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    # Following the log

    def _follow(self) -> None:
        self._used = asyncio.get_running_loop().time()
        if (self._follower is None or self._follower.done()) and not self._closing.is_set():
            self._follower = asyncio.create_task(self._read_on())

    async def _read_on(self) -> None:
        steps = self._steps
        assert steps is not None
        while True:
            async with self._lock:
                changed = await asyncio.to_thread(steps.read)
            if changed:
                self._wake_all()
            async with self._progress:
                self._progress.notify_all()
            if steps.indexed:
                idle = asyncio.get_running_loop().time() - self._used > _IDLE_S
                if not steps.live or (idle and not self._watchers):
                    self._wake_all()
                    return
                await asyncio.sleep(POLL_S)

    def _wake_all(self) -> None:
        for watcher in self._watchers:
            watcher.wake.set()

    # Live

    async def stream(self, since: int | None) -> AsyncIterator[str]:
        """Yield server-sent events until the run ends.

        Args:
            since: The last revision that the reader knows; None for now.
        """
        revision = await self.call(lambda steps: steps.revision)
        watcher = Watcher(revision if since is None else min(since, revision))
        self._watchers.add(watcher)
        forget = self._listen(watcher)
        try:
            yield "retry: 1000\n\n"
            yield _event("header", await self.header(), watcher.revision)
            while not self._closing.is_set():
                watcher.wake.clear()
                async for event in self._news(watcher):
                    yield event
                steps = self._steps
                if steps is not None and steps.indexed and not steps.live and not watcher.wake.is_set():
                    yield _event("header", await self.header(), watcher.revision)
                    yield _event("end", {}, watcher.revision)
                    return
                try:
                    async with asyncio.timeout(_HEARTBEAT_S):
                        await watcher.wake.wait()
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._watchers.discard(watcher)
            forget()

    async def _news(self, watcher: Watcher) -> AsyncIterator[str]:
        questions, watcher.questions = watcher.questions, {}
        revision = watcher.revision
        now, numbers = await self.call(lambda steps: (steps.revision, steps.changed_since(revision)))
        for at in range(0, len(numbers), _MAX_AT_ONCE):
            part = numbers[at : at + _MAX_AT_ONCE]
            for summary in await self.call(lambda steps, part=part: [s for n in part for s in steps.summaries(n, n)]):  # type: ignore[misc]
                yield _event("step", {"summary": summary}, None)
        # Only now: whoever comes back in the middle gets all of these steps again.
        watcher.revision = now
        if numbers:
            yield _event("header", await self.header(), now)
        for question in questions.values():
            yield _event("question", question, None)

    def _listen(self, watcher: Watcher) -> Callable[[], None]:
        if self.control is None:
            return lambda: None
        loop = asyncio.get_running_loop()

        def tell(question: QuestionDocument) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(watcher.ask, question)

        forget = self.control.listen(tell)
        for question in self.control.questions:
            watcher.ask(question)
        return forget


def _event(name: str, data: Any, revision: int | None) -> str:
    number = f"id: {revision}\n" if revision is not None else ""
    return f"event: {name}\n{number}data: {json.dumps(data)}\n\n"
