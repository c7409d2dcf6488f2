"""Waiting on an event loop for what happens in threads and on other event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from codeact_sandbox.host.threads import call_isolated
from codeact_sandbox.types.errors import SandboxTimeout

T = TypeVar("T")
CANCEL_TIMEOUT_S = 5.0


class Completion(Future[T]):
    """A future that who waits for it can't cancel: a cancellation ends the waiting only."""

    def cancel(self) -> bool:
        """Return False, and do nothing."""
        return False


async def wait_for(future: Future[T], timeout_s: float, message: str) -> T:
    """Wait for a future that a thread completes."""
    if future.done():
        return future.result()
    try:
        async with asyncio.timeout(timeout_s) as timer:
            return await asyncio.wrap_future(future)
    except TimeoutError:
        if timer.expired():
            raise SandboxTimeout(message) from None
        raise


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run a function in a thread, as `asyncio.to_thread` does, but wait for its end also when cancelled."""
    loop = asyncio.get_running_loop()
    return await to_the_end(loop.run_in_executor(None, call_isolated, partial(work, *arguments)))


async def to_the_end(work: asyncio.Future[T] | Coroutine[Any, Any, T]) -> T:
    """Await something that a cancellation does not end; wait for it, some seconds, also when cancelled."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if not working.done():
            await asyncio.wait({working}, timeout=CANCEL_TIMEOUT_S)
        if working.done() and not working.cancelled():
            working.exception()  # else asyncio reports it as never retrieved
        raise


async def in_threads(items: Generator[T]) -> AsyncGenerator[T]:
    """Iterate over a generator that yields no None, each step in a thread."""
    try:
        while (item := await in_thread(next, items, None)) is not None:
            yield item
    finally:
        items.close()  # it may have an open file


async def asynchronous(chunks: Iterable[bytes]) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk


class CrossLoopSemaphore:
    """A semaphore that is fair. An `asyncio.Semaphore` belongs to one event loop, and executors do not."""

    def __init__(self, value: int = 1) -> None:
        self._lock = threading.Lock()  # never held while something waits
        self._free = value
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            acquired = asyncio.get_running_loop().create_future()
            self._waiting.append(acquired)
        try:
            await acquired
        except BaseException:
            with self._lock:
                released = acquired not in self._waiting
                if not released:
                    self._waiting.remove(acquired)
            if released:
                await self.__aexit__()  # the release came before the cancellation
            raise

    async def __aexit__(self, *_: object) -> None:
        with self._lock:
            while self._waiting:
                next_one = self._waiting.popleft()
                try:
                    next_one.get_loop().call_soon_threadsafe(complete, next_one)
                except RuntimeError:  # its event loop has been closed
                    continue
                return
            self._free += 1


def complete(future: asyncio.Future[None]) -> None:
    """Complete a future, in its event loop, unless it has been cancelled."""
    if not future.done():
        future.set_result(None)
