"""Threads for host tools that are sync functions: limited in number, and they do not keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from autogen_codeact.sandbox.types.tool import ToolStuckError

T = TypeVar("T")

STUCK = (
    "the thread of this tool is still busy with an earlier call, which took too long or whose block has ended: no call can be "
    "made until that one returns"
)
MAX_THREADS = 16
IDLE_S = 10.0


Job = tuple[Future[Any], Callable[[], Any]]


class Threads:
    """A few daemon threads, started when they are needed; they end when they have been idle for a while.

    A function that is running can't be stopped: its thread stays taken until it returns.

    Args:
        most: How many there may be; further calls wait for one.
        idle_s: Seconds after which an idle one ends. None for never.
    """

    def __init__(self, most: int = MAX_THREADS, idle_s: float | None = IDLE_S) -> None:
        self._most = most
        self._idle_s = idle_s
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._alive = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads.

        Args:
            function: Takes no arguments; sees the context variables of the caller.

        Returns:
            What it returned.

        Raises:
            Exception: What it raised; a RuntimeError in place of an exception that would end a thread or a program.
        """
        return await asyncio.wrap_future(self._submit(function))

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        job: Future[T] = Future()
        self._jobs.put((job, partial(contextvars.copy_context().run, function)))
        with self._lock:
            if self._idle:
                self._idle -= 1  # that thread will take it
            elif self._alive < self._most:
                self._alive += 1
                threading.Thread(target=self._work, name="codeact-tool", daemon=True).start()
        return job

    def _work(self) -> None:
        while (item := self._next()) is not None:
            _run_job(*item)
            del item

    def _next(self) -> Job | None:
        """The next job; None if the thread is to end."""
        while True:
            job = self._wait()
            if job is not None:
                return job
            with self._lock:
                if self._jobs.empty():
                    self._alive -= 1
                    return None

    def _wait(self) -> Job | None:
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=self._idle_s)
        except queue.Empty:
            pass
        with self._lock:
            if self._idle:
                self._idle -= 1
                return None
        return self._jobs.get()  # a caller relies on this thread

    def close(self) -> None:
        """Let the threads end as soon as they have nothing to do; a later call makes new ones."""
        with self._lock:
            for _ in range(self._alive):
                self._jobs.put(None)
            self._idle = 0


class OwnThread(Threads):
    """One thread, in which all calls of a tool run one after the other, until `end`.

    If nobody waits any more for a call that is running, because it took too long or the block has ended, further calls fail until
    it returns: the thread can't be stopped.
    """

    def __init__(self) -> None:
        super().__init__(most=1, idle_s=None)
        self._abandoned: Future[Any] | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in the thread.

        Args:
            function: Takes no arguments; sees the context variables of the caller.

        Returns:
            What it returned.

        Raises:
            ToolStuckError: An earlier call for which nobody waits is still running.
            Exception: What it raised; a RuntimeError in place of an exception that would end a thread or a program.
        """
        if self._abandoned is not None and not self._abandoned.done():
            raise ToolStuckError(STUCK)
        job = self._submit(function)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if job.running():
                self._abandoned = job
            raise

    def close(self) -> None:
        """Do nothing: what the tool has made belongs to this thread, also for the next sandbox."""

    def end(self) -> None:
        """Let the thread end as soon as it has nothing to do."""
        super().close()


def _run_job(job: Future[Any], function: Callable[[], Any]) -> None:
    if not job.set_running_or_notify_cancel():
        return
    try:
        value = function()
    except Exception as error:  # noqa: BLE001 - passed to the caller
        job.set_exception(error)
    except BaseException as error:  # noqa: BLE001 - on its way into the event loop it would end that
        job.set_exception(RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": ")))
    else:
        job.set_result(value)
