"""What happens on event loops: work handed to one, waiting on one for a thread, reading on one."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from autogen_core import CancellationToken

from autogen_codeact.sandbox.errors import SandboxTimeout
from autogen_codeact.sandbox.host import forked

T = TypeVar("T")
PATIENCE_S = 5.0


def hand_over(
    loop: asyncio.AbstractEventLoop,
    work: Callable[..., object],
    *arguments: Any,
    context: contextvars.Context | None = None,
) -> None:
    """Have an event loop do something soon, in the order of asking; from anywhere, but without waking it from within.

    Args:
        loop: The loop.
        work: What it is to call.
        arguments: Its arguments.
        context: The context variables that it sees; by default those of here.

    Raises:
        RuntimeError: The loop has been closed.
    """
    inside = asyncio._get_running_loop() is loop
    (loop.call_soon if inside else loop.call_soon_threadsafe)(work, *arguments, context=context)


class Promise(Generic[T]):
    """A value that one side gives once and another waits for, one at a time; nobody can cancel it.

    A `concurrent.futures.Future` does the same for many times the work, which each block would pay.
    """

    __slots__ = ("_error", "_tell", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        """Whether it has been given, or failed."""
        self._value: T | None = None
        self._error: Exception | None = None
        self._tell: Callable[[], object] | None = None

    def give(self, value: T) -> None:
        """Give it."""
        self._value = value
        self._settle()

    def fail(self, error: Exception) -> None:
        """Say that it can't be given."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self.done = True
        if self._tell is not None:
            self._tell()

    def when_done(self, tell: Callable[[], object]) -> None:
        """Have somebody told, perhaps twice, in the thread of who gives it; whoever was to be told before is not any more."""
        self._tell = tell
        if self.done:
            tell()

    def result(self, seconds: float = 0.0) -> T:
        """Wait for it in a thread.

        Raises:
            TimeoutError: It took longer.
            Exception: What it has failed with.
        """
        if not self.done:
            done = threading.Event()
            self.when_done(done.set)
            if not done.wait(seconds):
                raise TimeoutError(f"there was no answer within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # given, perhaps as None


async def within(promise: Promise[T], seconds: float, late: str) -> T:
    """Wait for a promise on an event loop.

    Args:
        promise: The promise; it is left as it is when this is cancelled.
        seconds: How long to wait.
        late: What to say if that is not long enough.

    Returns:
        What was promised.

    Raises:
        SandboxTimeout: It took longer.
        Exception: What it has failed with.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()

    def done() -> None:
        if asyncio._get_running_loop() is loop:
            _settle(waiter, True)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(_settle, waiter, True)

    promise.when_done(done)
    timer = loop.call_later(seconds, _settle, waiter, False)
    try:
        if await waiter:
            return promise.result()
    finally:
        timer.cancel()
    raise SandboxTimeout(late)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run a function that takes up to some tenths of a second in a thread.

    Args:
        work: The function.
        arguments: Its arguments.

    Returns:
        Its result.

    Raises:
        asyncio.CancelledError: The caller was cancelled; the work has ended by then, or has taken `PATIENCE_S` since.
        Exception: What it raised.
    """
    working = asyncio.get_running_loop().run_in_executor(None, partial(work, *arguments))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if not working.done():
            await asyncio.wait({working}, timeout=PATIENCE_S)
        if working.done() and not working.cancelled():
            working.exception()  # else asyncio reports it as never retrieved
        raise


def _settle(waiter: asyncio.Future[bool], answered: bool) -> None:
    if not waiter.done():
        waiter.set_result(answered)


class CancelledBy:
    """Cancels what the running task does inside when a token is cancelled; the task itself counts as not cancelled afterwards.

    Args:
        token: The token.
    """

    def __init__(self, token: CancellationToken) -> None:
        self._token = token
        self._task: asyncio.Task[Any] | None = None
        self._asked = self._cancelled = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._token.add_callback(self._ask)
        if self._asked:
            self._task = None
            raise asyncio.CancelledError

    def __exit__(self, *_: object) -> None:
        # A token keeps what it was given for as long as it lives.
        task, self._task = self._task, None
        if self._cancelled and task is not None:
            task.uncancel()

    def _ask(self) -> None:
        self._asked, task = True, self._task
        # In a turn of its own: so it can't come while the task is on its way out.
        if task is not None and not task.get_loop().is_closed():
            hand_over(task.get_loop(), self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()


class LoopReader:
    """Has event loops read a descriptor, one at a time.

    Args:
        fd: The descriptor; its owner may close it at any time.
        read: Called on the loop that reads when there is something to read.

    Raises:
        OSError: There are no more descriptors.
    """

    def __init__(self, fd: int, read: Callable[[], None]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """Who reads, if anybody."""
        self.used = False
        """Whether something was read since somebody last said that nothing was."""
        # One of its own: a loop that still watches a descriptor when it is closed takes the next one of that number for it.
        self._fd = os.dup(fd)
        forked.keep_from_children(self._fd)
        self._read = read
        self._lock = threading.Lock()
        self._watching: set[asyncio.AbstractEventLoop] = set()
        self._closed = False

    def lend(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Have the running loop read from now on; False if it can't, or nobody may any more."""
        with self._lock:
            if self._closed:
                return False
            try:
                # The context variables of who happens to be the first to ask are no business of the others.
                contextvars.Context().run(loop.add_reader, self._fd, self._read)
            except (NotImplementedError, OSError):
                return False
            self._watching.add(loop)
            self.loop, self.used = loop, True
        return True

    def take_back(self) -> None:
        """Have no loop read any more; from any thread."""
        loop, self.loop = self.loop, None
        if loop is None:
            return
        with contextlib.suppress(RuntimeError):  # it has been closed, and watches nothing
            # One that has stopped may never run again.
            hand_over(loop, self._leave, loop) if loop.is_running() else self._leave(loop)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self.loop is not loop and loop in self._watching:
                loop.remove_reader(self._fd)
                self._watching.remove(loop)
                self._close_if_left()

    def close(self) -> None:
        """Let go of the descriptor, as soon as no loop watches it."""
        self.take_back()
        with self._lock:
            self._closed = True
            self._close_if_left()

    def _close_if_left(self) -> None:
        self._watching = {loop for loop in self._watching if not loop.is_closed()}
        if self._closed and not self._watching:
            forked.forget(self._fd)
            os.close(self._fd)
