"""Choosing an engine for each sandbox, and watching the engines: one state for each engine in this process.

A sandbox is placed on the engine with the fewest sandboxes that has room. While engines are in use, a thread for each
pings it. The rule: an engine is *out* when `FAILURES` pings in a row have failed. A ping is made every `PING_EVERY_S` seconds,
and `PING_AGAIN_S` after one that has failed. It fails at once if nothing accepts the connection, and after `PING_TIMEOUT_S`
without an answer. So a killed engine is out within 4 s, and one that hangs within 20 s; one slow answer never takes one out.
An engine that is out gets no sandboxes, and those that it has are ended from this side. The first answer brings it back. If it
went out again within `SETTLED_S` of coming back, others are preferred for `BACK_PAUSE_S`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.engine import ping
from codeact_sandbox.backends.docker.leftovers import remove_orphans_in_background
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.types.docker_hosts import DockerHost, DockerTLS
from codeact_sandbox.types.errors import SandboxError, SandboxUnavailable
from codeact_sandbox.types.text import format_count

if TYPE_CHECKING:
    from docker import APIClient

logger = logging.getLogger("codeact_sandbox")

PING_EVERY_S = 2.0
PING_AGAIN_S = 1.0
PING_TIMEOUT_S = 8.0
FAILURES = 2
STARTS_AT_ONCE = 8  # an engine that starts dozens of containers at once answers none of them in time
PAUSE_S = 10.0
SETTLED_S = 60.0
BACK_PAUSE_S = 10.0
LONGEST_REASON = 500

Address = tuple[str, DockerTLS | None]


@dataclass(eq=False)
class _Engine:
    """The state of an engine, as this process knows it."""

    host: DockerHost
    slots: set[Slot] = field(default_factory=set)
    users: int = 0
    failures: int = 0
    out: str | None = None  # why it is out, or None
    suspect: str | None = None  # why a connection has just failed, until a ping decides; or None
    problem: str | None = None  # why the last start failed although it answers, or None
    since: float = 0.0  # when it went out
    came_back: float = -math.inf
    paused_until: float = 0.0  # until when others are preferred
    last_used: float = 0.0
    ping_now: bool = False
    monitored: bool = False

    def load(self, host: DockerHost) -> tuple[bool, int, float] | None:
        """Return a key by which the best engine is the smallest, or None if it has no room."""
        starting = sum(not slot.running for slot in self.slots)
        if starting >= STARTS_AT_ONCE or (host.capacity is not None and len(self.slots) >= host.capacity):
            return None
        # One that has just failed to start a sandbox has the least load, and would get all of them.
        return self.paused_until > time.monotonic(), len(self.slots), self.last_used

    def describe(self, host: DockerHost, failed: str | None) -> str:
        """Say why a sandbox can't be started there, or how many it has."""
        if self.out is not None:
            return f"out for {time.monotonic() - self.since:.0f} s: {self.out}"
        reason = failed[:LONGEST_REASON] if failed is not None else self.suspect or self.problem
        if reason is not None:
            return reason
        if host.capacity:
            return f"{len(self.slots):,} of at most {format_count(host.capacity, 'sandbox', 'sandboxes')}"
        return format_count(len(self.slots), "sandbox", "sandboxes")


@dataclass(eq=False)
class Slot:
    """The place of a sandbox on an engine, until `release`."""

    host: DockerHost
    _placement: Placement
    _engine: _Engine
    _hosts: Sequence[DockerHost]
    running: bool = False
    lost: Future[str] = field(default_factory=Future)
    """Completed with the reason when the engine goes out while the sandbox starts or runs."""
    _taken: float = field(default_factory=time.monotonic)

    def started(self) -> None:
        """Note that the sandbox has started."""
        with self._placement.changed:
            self.running = True
            self._engine.problem, self._engine.paused_until = None, 0.0
            self._placement.changed.notify_all()

    def failed(self, error: SandboxError, *, unreachable: bool) -> None:
        """Release it, because no connection could be made, or the engine could not start the sandbox.

        One that can't be reached gets no sandboxes until it has answered a ping; one that answers, or hangs at this, is paused.
        """
        engine, reason = self._engine, str(error)[:LONGEST_REASON]
        taken_s = time.monotonic() - self._taken
        pause_s = 0.0 if unreachable and taken_s <= PING_TIMEOUT_S else max(PAUSE_S, taken_s)
        with self._placement.changed:
            if unreachable and engine.out is None:
                engine.suspect = reason
            level = logging.INFO if engine.problem == reason else logging.WARNING
            if pause_s:
                engine.problem, engine.paused_until = reason, time.monotonic() + pause_s
            engine.ping_now = True
            self._placement.changed.notify_all()
        if pause_s:
            message = "the Docker engine %s could not start a sandbox, and others are preferred for %.0f s: %s"
            logger.log(level, message, engine.host.label, pause_s, reason)
        self.release()

    def release(self) -> None:
        """Give it up; repeated calls are harmless."""
        with self._placement.changed:
            if self in self._engine.slots:
                self._engine.slots.discard(self)
                self._placement.end_use(self._hosts)


class Placement:
    """The engines of this process."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._engines: dict[Address, _Engine] = {}

    @contextlib.contextmanager
    def in_use(self, hosts: Sequence[DockerHost]) -> Iterator[None]:
        """Have engines watched."""
        with self.changed:
            self._use(hosts)
        try:
            yield
        finally:
            with self.changed:
                self.end_use(hosts)

    def take(
        self, hosts: Sequence[DockerHost], tried: Mapping[Address, str], until: float, cancelled: Future[Any]
    ) -> Slot:
        """Wait for an engine with room until a time, and return a place there, which is in use until its `release`.

        `tried` has those that have refused this sandbox, with their errors. To give up, complete `cancelled` and call `wake`.
        Raises `SandboxUnavailable` if there is none in time; the message says why for each engine.
        """
        with self.changed:
            self._use(hosts)
            try:
                return self._wait(hosts, tried, until, cancelled)
            except BaseException:
                self.end_use(hosts)
                raise

    def _wait(
        self, hosts: Sequence[DockerHost], tried: Mapping[Address, str], until: float, cancelled: Future[Any]
    ) -> Slot:
        began = time.monotonic()
        while not cancelled.done():
            engines = [(host, self._engine(host)) for host in hosts]
            usable = [each for each in engines if each[1].out is None and each[1].suspect is None]
            untried = [each for each in usable if each[0].address not in tried]
            if usable and not untried:
                raise SandboxUnavailable(f"No Docker engine could start the sandbox. {self._why(hosts, tried)}")
            loads = [(load, *each) for each in untried if (load := each[1].load(each[0])) is not None]
            if loads:
                _, host, engine = min(loads, key=lambda each: each[0])
                slot = Slot(host, self, engine, hosts)
                engine.slots.add(slot)
                engine.last_used = time.monotonic()
                return slot
            left = until - time.monotonic()
            if left <= 0:
                waited = f"within {time.monotonic() - began:.0f} s"
                problem = f"had room {waited}" if usable else f"answered {waited}"
                raise SandboxUnavailable(f"No Docker engine {problem}. {self._why(hosts, tried)}")
            self.changed.wait(min(left, PING_AGAIN_S))
        raise SandboxUnavailable("the start of the sandbox was cancelled")

    def wake(self) -> None:
        """Let those who wait in `take` look again."""
        with self.changed:
            self.changed.notify_all()

    def describe(self, hosts: Sequence[DockerHost]) -> str:
        """Return a sentence on each engine."""
        with self.changed:
            return self._why(hosts, {})

    def _why(self, hosts: Sequence[DockerHost], tried: Mapping[Address, str]) -> str:
        parts = [f"{host.label}: {self._engine(host).describe(host, tried.get(host.address))}" for host in hosts]
        return f"The engines: {'; '.join(part.rstrip('.') for part in parts)}."

    def why_out(self, host: DockerHost) -> str | None:
        """Return why an engine is out, or None."""
        with self.changed:
            engine = self._engines.get(host.address)
            return engine.out if engine is not None else None

    def _engine(self, host: DockerHost) -> _Engine:
        return self._engines.setdefault(host.address, _Engine(host))

    def _use(self, hosts: Sequence[DockerHost]) -> None:
        for host in hosts:
            engine = self._engine(host)
            engine.users += 1
            if not engine.monitored:
                engine.host, engine.monitored = host, True
                name = f"codeact-engine-{host.label}"
                try:
                    start_thread(name, self._monitor, engine)
                except RuntimeError:  # no more threads, or the program is ending
                    engine.monitored = False

    def end_use(self, hosts: Sequence[DockerHost]) -> None:
        """End what `in_use` or `take` has begun; the caller holds the lock."""
        for host in hosts:
            self._engine(host).users -= 1
        self.changed.notify_all()

    def _monitor(self, engine: _Engine) -> None:
        """Ping an engine for as long as it is used; a thread."""
        client: APIClient | None = None
        # A connection that is being made says as much; only one that is out or suspect must answer before it gets a sandbox.
        with self.changed:
            due = 0.0 if engine.out or engine.suspect else time.monotonic() + PING_EVERY_S
        while self._used(engine, due):
            try:
                client = ping(engine.host, client, PING_TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine has not answered
                client = None
                self._has_failed(engine, str(error)[:LONGEST_REASON])
            else:
                self._has_answered(engine)
            due = time.monotonic() + (PING_AGAIN_S if engine.failures == 1 else PING_EVERY_S)
        if client is not None:
            client.close()

    def _used(self, engine: _Engine, due: float) -> bool:
        """Wait for the next ping; return False when nobody uses the engine any more."""
        with self.changed:
            while engine.users and not engine.ping_now and (left := due - time.monotonic()) > 0:
                self.changed.wait(left)
            engine.ping_now = False
            engine.monitored = engine.users > 0
            return engine.monitored

    def _has_failed(self, engine: _Engine, reason: str) -> None:
        with self.changed:
            engine.failures += 1
            if engine.out is not None or engine.failures < FAILURES:
                return
            engine.out, engine.since, engine.suspect = reason, time.monotonic(), None
            slots = list(engine.slots)
            self.changed.notify_all()
        ends = f", which ends {format_count(len(slots), 'sandbox', 'sandboxes')} on it" if slots else ""
        message = "the Docker engine %s is out%s: %s It is asked again every %g s."
        logger.warning(message, engine.host.label, ends, reason, PING_EVERY_S)
        for slot in slots:
            if not slot.lost.done():
                slot.lost.set_result(reason)

    def _has_answered(self, engine: _Engine) -> None:
        with self.changed:
            was_out, now = engine.out is not None, time.monotonic()
            engine.failures, engine.suspect, engine.out = 0, None, None
            if was_out:
                # With no load it would get the next tasks, and end them when it goes out once more.
                settled = engine.since - engine.came_back > SETTLED_S
                engine.came_back, engine.paused_until = now, now + (0.0 if settled else BACK_PAUSE_S)
            self.changed.notify_all()
        if was_out:
            logger.warning("the Docker engine %s answers again after %.0f s", engine.host.label, now - engine.since)
            remove_orphans_in_background(engine.host)


_placements: dict[int, Placement] = {}


def placement() -> Placement:
    """Return the state of this process's engines; that of a forked process is a new one."""
    # Without a lock, which another thread of a forked process' parent may have held.
    return _placements.get(os.getpid()) or _placements.setdefault(os.getpid(), Placement())
