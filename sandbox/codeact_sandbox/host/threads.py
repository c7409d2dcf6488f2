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


def start_thread(name: str, work: Callable[..., object], *arguments: object, daemon: bool = True) -> threading.Thread:
    """Start a thread; RuntimeError if there are no more threads, or the program is ending."""
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=daemon)
    thread.start()
    return thread


class Threads:
    """A few daemon threads for functions that may never return; they start when they are needed, and end when nothing waits.

    A function that is running can't be stopped: its thread stays taken until it returns.
    """

    def __init__(self, most: int = MAX_THREADS, name: str = "codeact-tool") -> None:
        self._name = name
        self._free = most
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads; it is not called if the caller is cancelled before."""
        return await asyncio.wrap_future(self.submit(function))

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in one of the threads, as `run` does; return the future of its result."""
        job: Future[T] = Future()
        with self._lock:
            self._jobs.append((job, partial(contextvars.copy_context().run, function)))
            if self._free:
                start_thread(self._name, self._work)
                self._free -= 1
        return job

    def _work(self) -> None:
        while (item := self._next()) is not None:
            _run_job(*item)
            del item  # it may hold the last reference to the tool

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self._free += 1
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
