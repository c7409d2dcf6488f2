"""Sandboxes started ahead, so that an executor's start costs milliseconds."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import time
from concurrent.futures import Future
from typing import Any, Literal, Self, TypeVar

from autogen_codeact.executors.bubblewrap import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.pool_keeper import Keeper, PoolLimits
from autogen_codeact.sandbox.errors import SandboxError, SandboxNotStarted, SandboxTimeout
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.limits import parse_seconds

logger = logging.getLogger("autogen_codeact")

T = TypeVar("T")
ANSWER_TIMEOUT_S = 2.0
MAKERS: dict[str, type[DockerCommandLineCodeExecutor] | type[BubblewrapCommandLineCodeExecutor]] = {
    "docker": DockerCommandLineCodeExecutor,
    "bubblewrap": BubblewrapCommandLineCodeExecutor,
}
# Arguments that do not shape the sandbox itself.
PER_EXECUTOR = {
    *("timeout", "work_dir", "init_command", "delete_tmp_files", "languages", "functions", "functions_module"),
    *("tools", "tool_limits", "approve_tool", "progress", "pool", "write_back", "self"),
}
# What can't be true of a sandbox that is there before its executor.
UNFIT = {
    "container_name": (None, "the sandboxes of a pool have names of their own"),
    "bind_dir": (None, "sandboxes that are used one after the other would share a folder: use work_dir="),
    "stop_container": (True, "the end of a lease ends its sandbox"),
}


class SandboxPool:
    """Keeps sandboxes started, each for one executor and for one time.

    An executor that was made with `pool=` takes a started sandbox instead of starting one. When it stops, its sandbox ends, and
    the pool has started another one in the background meanwhile: nothing is ever carried over from one executor to the next.
    Use it with `async with`, or with `start` and `stop`. It serves several event loops and threads.

    Args:
        size: Sandboxes that are kept ready. Default 2.
        sandbox: "docker" (the default) or "bubblewrap".
        max_alive: Sandboxes that exist at the same time, those in use included. Who asks for one more waits. Default 32.
        starts_at_once: Sandboxes that are started at the same time; above 8 of one engine they take turns. Default 4.
        max_idle: Seconds after which a sandbox that nobody has taken gives way to a fresh one. By default never.
        acquire_timeout: Seconds that an executor waits for a sandbox. Default 60.
        options: Arguments of the executors: of `DockerCommandLineCodeExecutor` or `BubblewrapCommandLineCodeExecutor`.

    Raises:
        ValueError: An argument can't be right; the message says which.
    """

    def __init__(
        self,
        size: int = 2,
        *,
        sandbox: Literal["docker", "bubblewrap"] = "docker",
        max_alive: int = 32,
        starts_at_once: int = 4,
        max_idle: float | None = None,
        acquire_timeout: float = 60,
        **options: Any,
    ) -> None:
        _check(size=size, max_alive=max_alive, starts_at_once=starts_at_once)
        if size > max_alive:
            raise ValueError(f"size={size} is above max_alive={max_alive}: those that are ready count, too")
        if sandbox not in MAKERS:
            raise ValueError(f"sandbox must be 'docker' or 'bubblewrap', not {sandbox!r}")
        idle_s = parse_seconds("max_idle", max_idle) if max_idle is not None else None
        self._limits = PoolLimits(size, max_alive, starts_at_once, idle_s)
        self._acquire_timeout = parse_seconds("acquire_timeout", acquire_timeout)
        self._options = options
        self._template = self._make(sandbox, options)
        self._keeper: Keeper | None = None
        self._process = os.getpid()
        self._starting = threading.Lock()

    @staticmethod
    def _make(sandbox: str, options: dict[str, Any]) -> SandboxCodeExecutor:
        make = MAKERS[sandbox]
        for name in options:
            if name == "pool" or name not in inspect.signature(make).parameters:
                raise ValueError(
                    f"{name}= is not for a pool of sandbox={sandbox!r}: see the arguments of {make.__name__}"
                )
        made = make(**options)
        _refuse_unfit(made)
        return made

    def executor(self, **options: Any) -> SandboxCodeExecutor:
        """Make an executor, not started, that takes its sandbox from here.

        Args:
            options: Arguments of the executor beside the pool's own, such as `work_dir` and `timeout`.

        Raises:
            ValueError: An option differs from the pool's in what shapes the sandbox itself.
        """
        return type(self._template)(**{**self._options, **options}, pool=self)

    def check(self, executor: SandboxCodeExecutor) -> None:
        """See that an executor can use the sandboxes that are made here.

        Raises:
            ValueError: It can't; the message names the arguments that differ.
        """
        if type(executor) is not type(self._template):
            raise ValueError(
                f"the pool's sandboxes are for {type(self._template).__name__}, not for {type(executor).__name__}: "
                "make a pool of the other kind"
            )
        _refuse_unfit(executor)
        asked, here = _shape(executor), _shape(self._template)
        differing = sorted(name for name in asked if asked[name] != here.get(name))
        if differing:
            raise ValueError(
                f"the executor and its pool differ in {', '.join(differing)}: a pool makes sandboxes of one kind. Give both "
                "the same, or make the executor with pool.executor(…)"
            )

    async def start(self) -> None:
        """Begin to start sandboxes in the background; does nothing where that has begun.

        It does not wait for them, and an engine that is away is no error yet: see `ready`.
        """
        with self._starting:
            if self._own_keeper() is None:
                self._process = os.getpid()
                self._keeper = Keeper(self._template, self._limits)
                self._keeper.start()

    async def stop(self) -> None:
        """End all sandboxes, those in use included; repeated calls, also before `start`, are harmless."""
        keeper, self._keeper = self._own_keeper(), None
        if keeper is not None:
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(keeper.stop)))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def idle(self) -> int:
        """Sandboxes that are ready now."""
        keeper = self._own_keeper()
        return keeper.count(leased=False) if keeper is not None else 0

    @property
    def leased(self) -> int:
        """Sandboxes that are in use now."""
        keeper = self._own_keeper()
        return keeper.count(leased=True) if keeper is not None else 0

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until as many sandboxes are ready as are to be kept ready.

        Args:
            timeout: For how long, in seconds. By default `acquire_timeout`.

        Raises:
            SandboxNotStarted: The pool is not running.
            SandboxError: One could not be started, or not in time.
        """
        limit = timeout if timeout is not None else self._acquire_timeout
        keeper = self._running()
        await self._wait(
            keeper, keeper.when_full(), time.monotonic() + limit, f"the pool was not full within {limit:g} s"
        )

    async def acquire(self) -> RunnerClient:
        """Lease a sandbox: for executors, whose `start` calls it. Its `stop` ends the lease.

        Returns:
            One that has been used by nobody before.

        Raises:
            SandboxNotStarted: The pool is not running.
            SandboxTimeout: None was to be had in time; the message says why.
            SandboxError: One could not be started.
        """
        keeper = self._running()
        until = time.monotonic() + self._acquire_timeout
        complaint = f"no sandbox of the pool was available within {self._acquire_timeout:g} s"
        while True:
            sandbox = await self._wait(keeper, keeper.ask(), until, complaint)
            try:
                answers = await sandbox.answers(min(ANSWER_TIMEOUT_S, max(until - time.monotonic(), 0.1)))
            except BaseException:
                keeper.give_up(sandbox)
                raise
            if answers:
                return sandbox
            logger.info("the pooled sandbox %s no longer answers and is replaced", sandbox.name)
            keeper.give_up(sandbox)
            if time.monotonic() > until:
                raise SandboxTimeout(f"{complaint}: those that were ready did not answer")

    def _own_keeper(self) -> Keeper | None:
        # The parent's thread does not run in a forked process, and its lock may stay locked.
        return self._keeper if self._process == os.getpid() else None

    def _running(self) -> Keeper:
        if self._keeper is None:
            raise SandboxNotStarted("the pool is not running: use `async with pool:`, or start() first")
        if self._process != os.getpid():
            raise SandboxNotStarted("the pool was started by another process: start one of its own here")
        return self._keeper

    async def _wait(self, keeper: Keeper, awaited: Future[T], until: float, complaint: str) -> T:
        """Wait for what the keeper has promised."""
        if awaited.done():
            return awaited.result()
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await asyncio.wrap_future(awaited)
        except BaseException as error:
            keeper.withdraw(awaited)
            if isinstance(error, TimeoutError) and not isinstance(error, SandboxError):
                raise SandboxTimeout(f"{complaint}: {keeper.why()}") from None
            raise


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


def _refuse_unfit(executor: SandboxCodeExecutor) -> None:
    options = _shape(executor)
    for name, (fit, reason) in UNFIT.items():
        if options.get(name, fit) != fit:
            raise ValueError(f"{name}= is not for a pool: {reason}")


def _shape(executor: SandboxCodeExecutor) -> dict[str, Any]:
    """The arguments that shape the sandbox itself, by name."""
    kept = vars(executor)
    names = inspect.signature(type(executor).__init__).parameters.keys() - PER_EXECUTOR
    options = {name: kept[f"_{name}"] for name in names - {"bind_dir"}}
    options["bind_dir"] = kept["_mounted"]
    if "packages" in options:
        options["packages"] = {*kept["_packages"], *kept["_functions_packages"]}
    # What the runner is told of them at its start; what they do is each executor's own.
    options["tools"] = executor.tool_settings()
    return options
