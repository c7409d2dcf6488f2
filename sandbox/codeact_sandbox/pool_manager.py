"""The manager of a pool: one thread decides which sandboxes to start, reset and stop; a new thread does each of these."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.types.errors import SandboxError, SandboxNotStarted, SandboxStartError

logger = logging.getLogger("codeact_sandbox")

STOP_TIMEOUT_S = 60.0
RESET_TIMEOUT_S = 2.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
# The first block of a lease must not share the processor with a start that can wait.
AFTER_LEASE_S = 0.05
# A sandbox that ends sooner than this counts as a failure to start one.
EARLY_END_S = 10.0
# The manager wakes up at least so often, to notice that the program is ending.
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class PoolLimits:
    """The sizes of a pool."""

    size: int  # sandboxes started in advance
    max_alive: int  # sandboxes at the same time, those in use included
    starts_at_once: int  # sandboxes started at the same time
    max_uses: int = 1


@dataclass(eq=False)
class _PooledSandbox:
    """A sandbox of the pool, and what is done with it."""

    sandbox: RunnerClient
    since: float
    leased: bool = False
    discarded: bool = False
    ending: bool = False
    resetting: bool = False
    due_for_reset: bool = False
    uses: int = 0

    @property
    def idle(self) -> bool:
        return not (self.leased or self.ending or self.discarded or self.resetting) and self.sandbox.alive


@dataclass(eq=False)
class _Request:
    """A request for a sandbox, or for the pool to be full."""

    future: Future[Any]
    since: float


class PoolManager:
    """Starts sandboxes in advance, leases them, resets and stops them."""

    def __init__(
        self,
        start: Callable[[], Coroutine[Any, Any, RunnerClient]],
        limits: PoolLimits,
        expected: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._start_sandbox = start
        self._limits = limits
        self._expected = expected
        self._changed = threading.Condition()
        self._sandboxes: list[_PooledSandbox] = []
        self._waiting: deque[_Request] = deque()
        self._wait_full: list[_Request] = []
        self._starting = 0
        self._stopping = False
        self._failures = 0
        self._next_try = 0.0
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="codeact-pool", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def begin_stopping(self) -> None:
        """Start no more sandboxes, and let requests fail; sandboxes that are being started are stopped when they have started."""
        with self._changed:
            self._stopping = True
            failed = [*self._waiting, *self._wait_full]
            self._waiting.clear()
            self._wait_full.clear()
            self._changed.notify_all()
        for request in failed:
            _fail(request, SandboxNotStarted("the pool has been stopped"))

    def stop(self) -> None:
        """Stop all sandboxes; blocks until they are gone, or for a minute."""
        self.begin_stopping()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.warning(
                "the pool is stopped, but %d of its sandboxes take long to end (and %d to start, to be ended then)",
                *(len(self._sandboxes), self._starting),
            )

    def count(self, *, leased: bool) -> int:
        """Return how many are in use, or ready."""
        with self._changed:
            if leased:
                return sum(pooled.leased and pooled.sandbox.alive for pooled in self._sandboxes)
            return sum(pooled.idle for pooled in self._sandboxes)

    def state(self) -> str:
        """Describe the pool's state, for the message of a timeout."""
        with self._changed:
            leased = sum(pooled.leased for pooled in self._sandboxes)
            text = f"{leased} of at most {self._limits.max_alive} are in use, {self._starting} are being started"
            if self._error is not None:
                text += f"; the last start failed: {self._error}"
            if leased == self._limits.max_alive:
                text += "; stop an executor that is done, or raise max_alive"
            return text

    def request(self) -> Future[RunnerClient]:
        """Request a sandbox; the future is done at once if one is ready and no earlier request waits."""
        return self._add_request(full=False)

    def request_full(self) -> Future[None]:
        """Return a future that is done when `size` sandboxes are ready."""
        return self._add_request(full=True)

    def _add_request(self, *, full: bool) -> Future[Any]:
        request = _Request(Future(), time.monotonic())
        with self._changed:
            if self._stopping:
                _fail(request, SandboxNotStarted("the pool has been stopped"))
                return request.future
            if full:
                self._wait_full.append(request)
                self._next_try = 0.0
            else:
                self._waiting.append(request)
            self._grant()
            self._changed.notify_all()
        return request.future

    def withdraw(self, future: Future[Any]) -> None:
        """Withdraw a request; a sandbox that it has received meanwhile goes to the next request."""
        with self._changed:
            if future.cancel() or future.cancelled() or future.exception() is not None:
                self._waiting = deque(request for request in self._waiting if request.future is not future)
                self._wait_full = [request for request in self._wait_full if request.future is not future]
                return
            for pooled in self._sandboxes:
                if pooled.sandbox is future.result():
                    pooled.leased = False
            self._grant()
            self._changed.notify_all()

    def discard(self, sandbox: RunnerClient) -> None:
        """Stop a sandbox that does not work."""
        with self._changed:
            for pooled in self._sandboxes:
                if pooled.sandbox is sandbox:
                    pooled.discarded = True
                    self._delay_next_start()
            self._changed.notify_all()

    def give_back(self, sandbox: RunnerClient) -> bool:
        """End a lease; return whether its sandbox is kept for another one, after a reset; if not, the caller stops it."""
        with self._changed:
            pooled = next((each for each in self._sandboxes if each.sandbox is sandbox), None)
            if pooled is None or not pooled.leased or pooled.ending or pooled.discarded or self._stopping:
                return False
            pooled.uses += 1
            following = sandbox.renew() if pooled.uses < self._limits.max_uses else None
            if following is None:
                return False
            pooled.sandbox, pooled.leased = following, False
            pooled.resetting = pooled.due_for_reset = True
            self._changed.notify_all()
        return True

    def _run(self) -> None:
        with self._changed:
            while not self._stopping or self._sandboxes or self._starting:
                self._stop_those_due()
                self._reset_those_due()
                self._start_those_due()
                pause = self._next_try - time.monotonic()
                self._changed.wait(max(0.05, pause) if 0 < pause < LONGEST_WAIT_S else LONGEST_WAIT_S)

    def _stop_those_due(self) -> None:
        now = time.monotonic()
        for pooled in self._sandboxes:
            if pooled.ending:
                continue
            if not (pooled.leased or pooled.uses or pooled.sandbox.alive) and now - pooled.since < EARLY_END_S:
                self._delay_next_start()
            if self._stopping or pooled.discarded or not pooled.sandbox.alive:
                pooled.ending = _in_thread(self._end, pooled) is None
            elif not pooled.leased and now - pooled.since > EARLY_END_S:
                self._failures = 0

    def _reset_those_due(self) -> None:
        for pooled in self._sandboxes:
            if pooled.due_for_reset and not pooled.ending:
                pooled.due_for_reset = False
                if _in_thread(self._reset, pooled) is not None:
                    pooled.resetting, pooled.discarded = False, True

    def _reset(self, pooled: _PooledSandbox) -> None:
        problem = pooled.sandbox.reset_blocking(RESET_TIMEOUT_S)
        with self._changed:
            pooled.resetting = False
            if problem is None:
                pooled.since = time.monotonic()
                self._grant()
            elif not pooled.ending:
                pooled.discarded = True
                logger.info("the pooled sandbox %s is replaced after its use: %s", pooled.sandbox.name, problem)
            self._changed.notify_all()

    def _start_those_due(self) -> None:
        if self._stopping or not threading.main_thread().is_alive():
            return
        ahead = self._size() if time.monotonic() >= self._next_try else 0
        coming = sum(pooled.idle or pooled.resetting for pooled in self._sandboxes) + self._starting
        needed = len(self._waiting) + ahead - coming
        room = self._limits.max_alive - len(self._sandboxes) - self._starting
        for _ in range(min(needed, room, self._limits.starts_at_once - self._starting)):
            self._starting += 1
            if (error := _in_thread(self._start)) is not None:
                self._not_started(error)

    def _size(self) -> int:
        """Return how many are to be ready: none that nobody will request."""
        expected = self._expected()
        return self._limits.size if expected is None else min(expected, self._limits.size)

    def _start(self) -> None:
        began = time.monotonic()
        try:
            # Nothing of a sandbox belongs to the event loop that started it.
            sandbox = asyncio.run(self._start_sandbox())
        except BaseException as error:  # noqa: BLE001 - those who wait must get it, whatever it is
            self._not_started(error, began)
            return
        pooled = _PooledSandbox(sandbox, time.monotonic())
        with self._changed:
            self._starting -= 1
            self._next_try, self._error = 0.0, None
            self._sandboxes.append(pooled)
            self._grant()
            self._changed.notify_all()
        sandbox.when_ended(partial(self._ended, pooled))

    def _not_started(self, error: BaseException, began: float = math.inf) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, SandboxError):
            error = SandboxStartError(f"no sandbox could be started for the pool: {error}")
        with self._changed:
            self._starting -= 1
            known = str(error) == self._error
            self._error = str(error)
            pause = self._delay_next_start()
            # One request that is older than this attempt fails with it: there is one attempt for each.
            failed = [self._waiting.popleft()] if self._waiting and self._waiting[0].since < began else []
            failed += [request for request in self._wait_full if request.since < began]
            self._wait_full = [request for request in self._wait_full if request.since >= began]
            self._changed.notify_all()
        for request in failed:
            _fail(request, error)
        if not failed:
            level = logging.INFO if known else logging.WARNING
            logger.log(level, "no sandbox could be started for the pool, next try in %.1f s: %s", pause, str(error))

    def _delay_next_start(self) -> float:
        """Delay the next start that nobody waits for, and return by how many seconds."""
        pause: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self._next_try = time.monotonic() + pause
        return pause

    def _ended(self, pooled: _PooledSandbox, reason: SandboxError) -> None:
        with self._changed:
            unexpected = not (pooled.leased or pooled.ending or pooled.resetting)
            self._changed.notify_all()
        if unexpected:
            logger.info("the pooled sandbox %s has ended while idle and is replaced: %s", pooled.sandbox.name, reason)

    def _end(self, pooled: _PooledSandbox) -> None:
        try:
            pooled.sandbox.stop_blocking()
        except Exception as error:  # noqa: BLE001 - whatever it is, the pool goes on
            logger.warning("the pooled sandbox %s did not end well: %s", pooled.sandbox.name, str(error))
        with self._changed:
            self._sandboxes.remove(pooled)
            self._changed.notify_all()

    def _grant(self) -> None:
        """Give ready sandboxes to those who wait, the oldest request first."""
        idle = (pooled for pooled in list(self._sandboxes) if pooled.idle)
        while self._waiting:
            pooled = next(idle, None)
            if pooled is None:
                break
            while self._waiting:
                future = self._waiting.popleft().future
                if future.set_running_or_notify_cancel():
                    pooled.leased = True
                    self._failures = 0
                    # A pause is never prolonged: with many leases nothing would ever be started in advance.
                    if self._next_try <= (now := time.monotonic()):
                        self._next_try = now + AFTER_LEASE_S
                    future.set_result(pooled.sandbox)
                    break
        if self._wait_full and sum(pooled.idle for pooled in self._sandboxes) >= self._size():
            full, self._wait_full = self._wait_full, []
            for request in full:
                if request.future.set_running_or_notify_cancel():
                    request.future.set_result(None)


def _in_thread(work: Callable[..., None], *arguments: Any) -> RuntimeError | None:
    """Begin work in a thread; return the error if there are no more threads, or the program is ending."""
    try:
        threading.Thread(target=work, args=arguments, name="codeact-pool-work", daemon=False).start()
    except RuntimeError as error:
        return error
    return None


def _fail(request: _Request, error: BaseException) -> None:
    if request.future.set_running_or_notify_cancel():
        request.future.set_exception(error)
