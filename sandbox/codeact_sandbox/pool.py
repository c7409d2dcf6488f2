"""Sandboxes that are started in advance, so that a start takes milliseconds."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Self, TypeVar, Unpack

from codeact_sandbox import backend_selection as select
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.leftovers import remove_leftovers_in_background
from codeact_sandbox.pool_manager import PoolLimits, PoolManager
from codeact_sandbox.toolset import Tool, Toolset
from codeact_sandbox.types.errors import SandboxError, SandboxNotStarted, SandboxTimeout
from codeact_sandbox.types.limits import parse_seconds
from codeact_sandbox.types.option_parsing import options_of
from codeact_sandbox.types.option_types import SandboxKeywords
from codeact_sandbox.types.options import BackendName, SandboxOptions

logger = logging.getLogger("codeact_sandbox")

T = TypeVar("T")
ANSWER_TIMEOUT_S = 2.0
# Options that a sandbox can't have which exists before its user, with the value that is allowed.
UNFIT = {
    "container_name": (None, "the sandboxes of a pool have names of their own"),
    "bind_dir": (None, "sandboxes that are used one after the other would share a folder: use work_dir="),
    "stop_container": (True, "the end of a lease ends its sandbox"),
}


class SandboxPool:
    """Keeps sandboxes started, each for one use: a lease, from `acquire` until the sandbox is stopped.

    `AsyncSandbox(pool=pool)` takes a started sandbox instead of starting one. When it stops, its sandbox ends; the pool has
    started another one in the background. With `max_uses` above 1 the sandbox is reset instead, and used again if the reset
    is proven to be complete (docs/security.md).
    Use it with `async with`, or with `start` and `stop`. It serves several event loops and threads.

    Args:
        size: Sandboxes that are started in advance. Default 2. With 0 each is started when it is requested.
        backend: "docker", "bubblewrap", or "auto" (the default): Docker if an engine answers, else bubblewrap. Or the options
            of the sandboxes.
        tools: Functions of this process that the code can call.
        max_alive: Sandboxes that exist at the same time, those in use included. Further requests wait. Default 32.
        starts_at_once: Sandboxes that are started at the same time; above 8 of one engine they wait for each other. Default 4.
        acquire_timeout: Seconds that a request waits for a sandbox. Default 60.
        max_uses: How often one sandbox is used before it is replaced. Default 1.
        progress: Called with a line for each step that takes long. By default it goes to standard error.
        options: Fields of `DockerOptions` or `BubblewrapOptions`. Default of `mode`: "session".

    Raises:
        TypeError: An option is unknown or has a wrong type.
        ValueError: An argument is invalid; the message says which.
    """

    def __init__(
        self,
        size: int = 2,
        *,
        backend: BackendName | SandboxOptions = "auto",
        tools: Sequence[Tool] | Toolset = (),
        max_alive: int = 32,
        starts_at_once: int = 4,
        acquire_timeout: float = 60,
        max_uses: int = 1,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[SandboxKeywords],
    ) -> None:
        check_sizes(size, max_alive, starts_at_once, max_uses)
        self._limits = PoolLimits(size, max_alive, starts_at_once, max_uses)
        self._acquire_timeout = parse_seconds("acquire_timeout", acquire_timeout)
        if backend == "auto":
            backend = select.choose_backend(options)
        self.options = options_of(backend, options, type(self))
        _refuse_unfit(self.options)
        if max_uses > 1:
            select.check_reusable(self.options)
        self._tools = tools if isinstance(tools, Toolset) else Toolset(tools, self.options.tool_limits, None)
        self._progress = progress
        self._manager: PoolManager | None = None
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._starts: set[RunnerClient] = set()
        self.expected: Callable[[], int | None] = lambda: None
        """Returns how many more sandboxes will be requested, or None if that is not known. No more are started in advance. It is
        called often, by threads of the pool; set it before `start`."""

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
            if self._own_manager() is None:
                self._process = os.getpid()
                self._manager = PoolManager(self._start_one, self._limits, self.expected)
                self._manager.start()

    async def _start_one(self) -> RunnerClient:
        remove_leftovers_in_background()
        client = select.make_client(
            self.options,
            self._tools.broker.settings(),
            self._progress,
            reusable=self._limits.max_uses > 1,
        )
        self._starts.add(client)
        try:
            await client.start()
        finally:
            self._starts.discard(client)
        return client

    async def stop(self) -> None:
        """Stop all sandboxes, those in use included; repeated calls, also before `start`, are harmless."""
        manager, self._manager = self._own_manager(), None
        if manager is not None:
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self._stop, manager)))

    def _stop(self, manager: PoolManager) -> None:
        manager.begin_stopping()
        for client in list(self._starts):
            client.cancel_start()
        manager.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def idle(self) -> int:
        """Number of sandboxes that are ready."""
        return self._count(leased=False)

    @property
    def leased(self) -> int:
        """Number of sandboxes that are in use."""
        return self._count(leased=True)

    def _count(self, *, leased: bool) -> int:
        manager = self._own_manager()
        return manager.count(leased=leased) if manager is not None else 0

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until `size` sandboxes are ready.

        Args:
            timeout: Seconds to wait. By default `acquire_timeout`.

        Raises:
            SandboxNotStarted: The pool is not running.
            SandboxError: One could not be started, or not in time.
        """
        limit = timeout if timeout is not None else self._acquire_timeout
        manager = self._running()
        await self._wait(
            manager, manager.request_full(), time.monotonic() + limit, f"the pool was not full within {limit:g} s"
        )

    async def acquire(self) -> RunnerClient:
        """Lease a sandbox; its `end_use` or `stop` ends the lease.

        Returns:
            A sandbox that nobody has used before, or that has been reset.

        Raises:
            SandboxNotStarted: The pool is not running.
            SandboxTimeout: None was available in time; the message says why.
            SandboxError: One could not be started.
        """
        manager = self._running()
        deadline = time.monotonic() + self._acquire_timeout
        message = f"no sandbox of the pool was available within {self._acquire_timeout:g} s"
        while True:
            sandbox = await self._wait(manager, manager.request(), deadline, message)
            try:
                answers = await sandbox.requests.answers(min(ANSWER_TIMEOUT_S, max(deadline - time.monotonic(), 0.1)))
            except BaseException:
                manager.discard(sandbox)
                raise
            if answers:
                sandbox.give_back = manager.give_back if self._limits.max_uses > 1 else None
                return sandbox
            logger.info("the pooled sandbox %s no longer answers and is replaced", sandbox.name)
            manager.discard(sandbox)
            if time.monotonic() > deadline:
                raise SandboxTimeout(f"{message}: those that were ready did not answer")

    def _own_manager(self) -> PoolManager | None:
        # The parent's thread does not run in a forked process, and its lock may stay locked.
        return self._manager if self._process == os.getpid() else None

    def _running(self) -> PoolManager:
        if self._manager is None:
            raise SandboxNotStarted("the pool is not running: use `async with pool:`, or start() first")
        if self._process != os.getpid():
            raise SandboxNotStarted("the pool was started by another process: start one of its own here")
        return self._manager

    async def _wait(self, manager: PoolManager, future: Future[T], deadline: float, message: str) -> T:
        """Wait for a future of the manager."""
        if future.done():
            return future.result()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await asyncio.wrap_future(future)
        except BaseException as error:
            manager.withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, SandboxError):
                raise SandboxTimeout(f"{message}: {manager.state()}") from None
            raise


def check_sizes(size: int, max_alive: int, starts_at_once: int, max_uses: int = 1) -> None:
    """Check the numbers of a pool."""
    numbers = {"size": size, "max_alive": max_alive, "starts_at_once": starts_at_once, "max_uses": max_uses}
    for name, value in numbers.items():
        least = 0 if name == "size" else 1
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")
    if size > max_alive:
        raise ValueError(f"size={size} is above max_alive={max_alive}: those that are ready count, too")


def _refuse_unfit(options: SandboxOptions) -> None:
    for name, (allowed, reason) in UNFIT.items():
        if getattr(options, name, allowed) != allowed:
            raise ValueError(f"{name}= is not for a pool: {reason}")
