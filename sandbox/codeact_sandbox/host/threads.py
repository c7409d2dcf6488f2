"""The threads of this library, beside those of asyncio; most are daemon threads, which no program waits for at its end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 16
IDLE_S = 2.0


def start_thread(name: str, work: Callable[..., object], *arguments: object, daemon: bool = True) -> threading.Thread:
    """Start a thread; RuntimeError if there are no more threads, or the program is ending."""
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=daemon)
    thread.start()
    return thread


class Threads:
    """A few daemon threads for functions that may never return. They start when they are needed, and end when they are idle.

    A function that is running can't be stopped: its thread stays taken until it returns.
    """

    def __init__(self, most: int = MAX_THREADS, idle_s: float | None = IDLE_S, name: str = "codeact-tool") -> None:
        self._name = name
        self._most = most
        self._idle_s = idle_s
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._idle = self._alive = 0
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads; it is not called if the caller is cancelled before."""
        return await asyncio.wrap_future(self.submit(function))

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in one of the threads, as `run` does; return the future of its result."""
        job: Future[T] = Future()
        with self._changed:
            self._closed = False
            self._jobs.append((job, partial(contextvars.copy_context().run, function)))
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif self._alive < self._most:
                self._alive += 1
                start_thread(self._name, self._work)
        return job

    def close(self) -> None:
        """Let the threads end as soon as they have nothing to do; a later call makes new ones."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            _run_job(*item)
            del item  # it may hold the last reference to the tool

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closed, self._idle_s)
            self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self._alive -= 1
            return None


def _run_job(job: Future[Any], function: Callable[[], Any]) -> None:
    if not job.set_running_or_notify_cancel():
        return
    try:
        value = call_isolated(function)
    except Exception as error:  # noqa: BLE001 - passed to the caller
        job.set_exception(error)
    else:
        job.set_result(value)


def call_isolated(function: Callable[[], T]) -> T:
    """Call a function; raise a RuntimeError for what the future of an event loop can't hold.

    A StopIteration would leave the caller waiting for ever (before Python 3.12), and a KeyboardInterrupt or SystemExit would end
    the event loop.
    """
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError(_described(error)) from error
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(_described(error)) from error


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
