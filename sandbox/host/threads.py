"""The threads of this library: those that asyncio does not start for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start_thread(name: str, work: Callable[..., object], *arguments: object, daemon: bool = True) -> threading.Thread:
    """Start a thread, which by default nothing waits for when the program ends, unlike asyncio's own.

    Raises:
        RuntimeError: There are no more threads, or the program is ending.
    """
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=daemon)
    thread.start()
    return thread


def in_abandonable_thread(name: str, work: Callable[..., T], *arguments: object) -> Future[T]:
    """Call a function in a thread that can be abandoned, such as one that looks up a name; return the future of its result."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            future.set_exception(error)

    start_thread(name, run)
    return future
