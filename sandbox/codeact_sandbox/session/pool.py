"""Sandboxes that are started in advance, so that a start takes milliseconds."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar, Unpack

from codeact_sandbox.backends import selection as select
from codeact_sandbox.backends.leftovers import remove_leftovers_in_background
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.tools.toolset import Tool, Toolset
from codeact_sandbox.types.errors import SandboxError, SandboxNotStarted, SandboxStartError, SandboxTimeout
from codeact_sandbox.types.limits import parse_seconds
from codeact_sandbox.types.option_parsing import options_of
from codeact_sandbox.types.option_types import SandboxKeywords
from codeact_sandbox.types.options import BackendName, SandboxOptions

logger = logging.getLogger("codeact_sandbox")

T = TypeVar("T")
ANSWER_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 60.0
STARTS_AT_ONCE = 4
# After so many failures in a row none is started in advance until there is a request.
MAX_FAILURES = 3
# Options that a sandbox can't have which exists before its user, with the value that is allowed.
UNFIT = {
    "container_name": (None, "the sandboxes of a pool have names of their own"),
    "bind_dir": (None, "sandboxes that are used one after the other would share a folder: use work_dir="),
    "stop_container": (True, "the end of a lease ends its sandbox"),
}


class Pool:
    """Keeps sandboxes started, each for one use: a lease, from `acquire` until the sandbox is stopped; see `SandboxPool`."""

    def __init__(
        self,
        size: int = 2,
        *,
        backend: BackendName | SandboxOptions = "auto",
        tools: Sequence[Tool] | Toolset = (),
        max_alive: int = 32,
        acquire_timeout: float = 60,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[SandboxKeywords],
    ) -> None:
        for name, value, least in (("size", size, 0), ("max_alive", max_alive, 1)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if size > max_alive:
            raise ValueError(f"size={size} is above max_alive={max_alive}: those that are ready count, too")
        self.size = size
        self.max_alive = max_alive
        self._acquire_timeout = parse_seconds("acquire_timeout", acquire_timeout)
        if backend == "auto":
            backend = select.choose_backend(options)
        self.options = options_of(backend, options, type(self))
        _refuse_unfit(self.options)
        self._tools = tools if isinstance(tools, Toolset) else Toolset(tools, self.options.tool_limits, None)
        self._given_tools = tools
        self._progress = progress
        self._sandboxes: _Sandboxes | None = None
        self._process = os.getpid()
        self._starting = threading.Lock()

    def check(self, options: SandboxOptions, tools: Toolset) -> None:
        """Check that these sandboxes can be used with some options; the ValueError names the options that differ."""
        if options.backend != self.options.backend:
            raise ValueError(
                f"the pool's sandboxes are for {self.options.backend}, not for {options.backend}: make a pool of the other kind"
            )
        _refuse_unfit(options)
        requested = {**options.shape(), "tools": tools.broker.settings()}
        pooled = {**self.options.shape(), "tools": self._tools.broker.settings()}
        differing = sorted(name for name in requested if requested[name] != pooled.get(name))
        if differing:
            raise ValueError(
                f"the options of the pool differ in {', '.join(differing)}: all its sandboxes are of one kind. Give both the "
                "same, leave them and backend= out here, or use another pool"
            )

    async def start(self) -> None:
        """Begin to start sandboxes in the background; do nothing if that has begun.

        It does not wait for them, and an engine that is unavailable is not an error yet: see `ready`.
        """
        with self._starting:
            if self._own_sandboxes() is None:
                self._process = os.getpid()
                self._sandboxes = _Sandboxes(self)

    def make_client(self) -> RunnerClient:
        remove_leftovers_in_background()
        return select.make_client(self.options, self._tools.broker.settings(), self._progress)

    async def stop(self) -> None:
        """Stop all sandboxes, those in use included; repeated calls, also before `start`, are harmless."""
        sandboxes, self._sandboxes = self._own_sandboxes(), None
        if sandboxes is not None:
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(sandboxes.stop)))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def idle(self) -> int:
        """Number of sandboxes that are ready."""
        sandboxes = self._own_sandboxes()
        return len(sandboxes.idle) if sandboxes is not None else 0

    @property
    def leased(self) -> int:
        """Number of sandboxes that are in use."""
        sandboxes = self._own_sandboxes()
        return len(sandboxes.leased) if sandboxes is not None else 0

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until `size` sandboxes are ready.

        Args:
            timeout: Seconds to wait. By default `acquire_timeout`.

        Raises:
            SandboxNotStarted: The pool is not running.
            SandboxError: One could not be started, or not in time.
        """
        limit = timeout if timeout is not None else self._acquire_timeout
        sandboxes, deadline = self._running(), time.monotonic() + limit
        await self._wait(sandboxes, sandboxes.request_full(), deadline, f"the pool was not full within {limit:g} s")

    async def acquire(self) -> RunnerClient:
        """Lease an unused sandbox; its `stop` ends the lease.

        Raises:
            SandboxNotStarted: The pool is not running.
            SandboxTimeout: None was available in time; the message says why.
            SandboxError: One could not be started.
        """
        sandboxes = self._running()
        deadline = time.monotonic() + self._acquire_timeout
        message = f"no sandbox of the pool was available within {self._acquire_timeout:g} s"
        while True:
            client = await self._wait(sandboxes, sandboxes.request(), deadline, message)
            try:
                if await client.requests.answers(min(ANSWER_TIMEOUT_S, max(deadline - time.monotonic(), 0.1))):
                    return client
            except BaseException:
                sandboxes.discard(client)
                raise
            logger.info("the pooled sandbox %s no longer answers and is replaced", client.name)
            sandboxes.discard(client)
            if time.monotonic() > deadline:
                raise SandboxTimeout(f"{message}: those that were ready did not answer")

    def _own_sandboxes(self) -> _Sandboxes | None:
        # The parent's threads do not run in a forked process, and its lock may stay locked.
        return self._sandboxes if self._process == os.getpid() else None

    def _running(self) -> _Sandboxes:
        if self._sandboxes is None:
            raise SandboxNotStarted("the pool is not running: use `async with pool:`, or start() first")
        if self._process != os.getpid():
            raise SandboxNotStarted("the pool was started by another process: start one of its own here")
        return self._sandboxes

    async def _wait(self, sandboxes: _Sandboxes, future: Future[T], deadline: float, message: str) -> T:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await asyncio.wrap_future(future)
        except BaseException as error:
            sandboxes.withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, SandboxError):
                raise SandboxTimeout(f"{message}: {sandboxes.describe()}") from None
            raise


class _Sandboxes:
    """The sandboxes of a pool that runs, for any thread. Whatever changes decides at once which to lease and to start.

    A start and an end take a thread of their own.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._changed = threading.Condition()
        self.idle: deque[RunnerClient] = deque()
        self.leased: set[RunnerClient] = set()
        self._ending: set[RunnerClient] = set()
        self._starts = 0
        self._starting: set[RunnerClient] = set()
        # Requests, the oldest first, each with its time.
        self._waiting: deque[tuple[Future[RunnerClient], float]] = deque()
        self._wait_full: list[Future[None]] = []
        self._stopping = False
        self._failures = 0
        self._error: str | None = None
        with self._changed:
            self._update()

    def request(self) -> Future[RunnerClient]:
        """Request a sandbox; the future is done at once if one is ready and no earlier request waits."""
        future = Future[RunnerClient]()
        with self._changed:
            self._waiting.append((future, time.monotonic()))
            self._update()
        return future

    def request_full(self) -> Future[None]:
        future = Future[None]()
        with self._changed:
            self._wait_full.append(future)
            self._failures = 0
            self._update()
        return future

    def withdraw(self, future: Future[Any]) -> None:
        """Withdraw a request; a sandbox that it has received meanwhile goes to the next request."""
        with self._changed:
            if not future.cancel() and not future.cancelled() and future.exception() is None:
                client = future.result()
                if client in self.leased:
                    self.leased.remove(client)
                    self.idle.append(client)
            self._waiting = deque(each for each in self._waiting if each[0] is not future)
            self._wait_full = [each for each in self._wait_full if each is not future]
            self._update()

    def discard(self, client: RunnerClient) -> None:
        with self._changed:
            self._begin_end(client)

    def describe(self) -> str:
        with self._changed:
            leased, most = len(self.leased), self._pool.max_alive
            text = f"{leased} of at most {most} are in use, {self._starts} are being started"
            if self._error is not None:
                text += f"; the last start failed: {self._error}"
            if leased == most:
                text += "; stop a sandbox that is done, or raise max_alive"
            return text

    def stop(self) -> None:
        """Stop all sandboxes; blocks until they are gone, or for a minute."""
        with self._changed:
            self._stopping = True
            self._update()
            for client in [*self.idle, *self.leased]:
                self._begin_end(client)
            for client in self._starting:
                client.cancel_start()
            if not self._changed.wait_for(lambda: not (self._ending or self._starts), STOP_TIMEOUT_S):
                logger.warning(
                    "the pool is stopped, but %d of its sandboxes take long to end (and %d to start, to be ended then)",
                    *(len(self._ending), self._starts),
                )

    def _update(self) -> None:
        """Lease what is ready to those who wait, and start what is missing."""
        if self._stopping:
            pending: list[Future[Any]] = [*(future for future, _ in self._waiting), *self._wait_full]
            for future in pending:
                _fail(future, SandboxNotStarted("the pool has been stopped"))
            self._waiting.clear()
            self._wait_full.clear()
            return
        while self._waiting and self.idle:
            request, _ = self._waiting.popleft()
            if request.set_running_or_notify_cancel():
                client = self.idle.popleft()
                self.leased.add(client)
                self._failures = 0
                request.set_result(client)
        ahead = self._pool.size
        if len(self.idle) >= ahead:
            for full in self._wait_full:
                if full.set_running_or_notify_cancel():
                    full.set_result(None)
            self._wait_full.clear()
        if not threading.main_thread().is_alive():
            return  # the program is ending
        needed = len(self._waiting) + (ahead if self._failures < MAX_FAILURES else 0) - len(self.idle) - self._starts
        room = self._pool.max_alive - len(self.idle) - len(self.leased) - len(self._ending) - self._starts
        for _ in range(min(needed, room, STARTS_AT_ONCE - self._starts)):
            self._starts += 1
            try:
                threading.Thread(target=self._start, name="codeact-pool-start").start()
            except RuntimeError as error:  # there are no more threads, or the program is ending
                self._begun(None)
                self._not_started(error, time.monotonic())
                return

    def _start(self) -> None:
        client, began = None, time.monotonic()
        try:
            client = self._pool.make_client()
            with self._changed:
                self._starting.add(client)
                if self._stopping:
                    client.cancel_start()
            # Nothing of a sandbox belongs to the event loop that started it.
            asyncio.run(client.start())
        except BaseException as error:  # noqa: BLE001 - those who wait must get it, whatever it is
            with self._changed:
                self._begun(client)
                self._not_started(error, began)
            return
        with self._changed:
            self._begun(client)
            self._error = None
            self.idle.append(client)
            if self._stopping:
                self._begin_end(client)
            self._update()
        client.when_ended(lambda reason: self._ended(client, reason))

    def _begun(self, client: RunnerClient | None) -> None:
        self._starts -= 1
        if client is not None:
            self._starting.discard(client)
        self._changed.notify_all()

    def _not_started(self, error: BaseException, began: float) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, SandboxError):
            error = SandboxStartError(f"no sandbox could be started for the pool: {error}")
        known, self._error = str(error) == self._error, str(error)
        self._failures += 1
        failed: list[Future[Any]] = [*self._wait_full]
        self._wait_full.clear()
        if self._waiting and self._waiting[0][1] <= began:
            failed.append(self._waiting.popleft()[0])  # there is one attempt for each
        for future in failed:
            _fail(future, error)
        if not failed:
            level = logging.INFO if known else logging.WARNING
            logger.log(
                level, "no sandbox could be started for the pool, it tries again with the next request: %s", str(error)
            )
        self._update()

    def _ended(self, client: RunnerClient, reason: SandboxError) -> None:
        with self._changed:
            if client in self.idle:
                logger.info("the pooled sandbox %s has ended while idle and is replaced: %s", client.name, reason)
                self._failures += 1
            self._begin_end(client)

    def _begin_end(self, client: RunnerClient) -> None:
        if client in self.idle:
            self.idle.remove(client)
        elif client in self.leased:
            self.leased.remove(client)
        else:
            return
        self._ending.add(client)
        threading.Thread(target=self._end, args=(client,), name="codeact-pool-end").start()

    def _end(self, client: RunnerClient) -> None:
        try:
            client.stop_blocking()
        except Exception as error:  # noqa: BLE001 - whatever it is, the pool goes on
            logger.warning("the pooled sandbox %s did not end well: %s", client.name, str(error))
        with self._changed:
            self._ending.remove(client)
            self._update()
            self._changed.notify_all()


def _refuse_unfit(options: SandboxOptions) -> None:
    for name, (allowed, reason) in UNFIT.items():
        if getattr(options, name, allowed) != allowed:
            raise ValueError(f"{name}= is not for a pool: {reason}")


def _fail(future: Future[Any], error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
