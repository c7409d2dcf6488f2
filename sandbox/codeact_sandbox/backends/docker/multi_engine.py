"""Starting a runner on one of several Docker engines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.launcher import DockerLauncher
from codeact_sandbox.backends.docker.placement import Address, Slot, placement
from codeact_sandbox.backends.docker.stream import DockerStream
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.host.waiting import Completion
from codeact_sandbox.types.docker_hosts import DockerHost
from codeact_sandbox.types.errors import SandboxError, SandboxNameInUse, SandboxUnavailable


class MultiEngineLauncher:
    """Starts one container on the engine with the least load; if it does not start there, on another one."""

    engine = None  # the number of starts at the same time is limited for each engine by its placement

    def __init__(
        self, hosts: Sequence[DockerHost], make: Callable[[DockerHost], DockerLauncher], wait_s: float
    ) -> None:
        self._hosts = hosts
        self._make = make
        self._wait_s = wait_s
        self._cancelled = Completion[None]()
        self._lock = threading.Lock()
        self._launcher: DockerLauncher | None = None
        self._slot: Slot | None = None

    @property
    def host_name(self) -> str | None:
        """Name of the engine in use, or of the last one."""
        slot = self._slot
        return slot.host.label if slot is not None else None

    @property
    def python(self) -> Hashable | None:
        """What identifies its Python: see `DockerLauncher.python`."""
        launcher = self._launcher
        return launcher.python if launcher is not None else None

    def launch(self, boot: str) -> DockerStream:
        """Start the container; the arguments and errors are those of `DockerLauncher.launch`."""
        # Texts: an error refers to this function's variables, and together they would keep sockets open.
        tried: dict[Address, str] = {}
        unreachable: set[Address] = set()
        until = time.monotonic() + self._wait_s
        while True:
            slot = self._slot = placement().take(self._hosts, tried, until, self._cancelled)
            try:
                stream = self._launch_on(slot, boot, tried, unreachable)
            except BaseException:
                slot.release()
                raise
            if stream is not None:
                stream.when_closed = slot.release
                slot.started()
                slot.lost.add_done_callback(partial(_abandon, stream, slot.host))
                return stream

    def _launch_on(
        self, slot: Slot, boot: str, tried: dict[Address, str], unreachable: set[Address]
    ) -> DockerStream | None:
        """Return its stream; None if another engine, or this one once more, should be tried."""
        launcher = self._make(slot.host)
        with self._lock:
            self._launcher = launcher
            if self._cancelled.done():
                launcher.cancel()
        try:
            return _launch(launcher, slot, boot)
        except SandboxNameInUse:
            raise
        except SandboxError as error:
            if not isinstance(error, _AbandonedError):
                launcher.close()
            unavailable = isinstance(error, SandboxUnavailable)
            no_image = launcher.image_failed and _answers(slot.host)
            if self._cancelled.done() or (no_image and not unavailable):
                raise  # another engine would build the same image in vain
            first_time = unavailable and not no_image and slot.host.address not in unreachable
            if first_time:
                unreachable.add(slot.host.address)
            else:
                tried[slot.host.address] = str(error)
            slot.failed(error, unreachable=first_time)
            return None

    def cancel(self) -> None:
        """Let a running `launch` end early where it takes long."""
        with self._lock:
            if not self._cancelled.done():
                self._cancelled.set_result(None)
            launcher = self._launcher
        if launcher is not None:
            launcher.cancel()
        placement().wake()

    def kill(self) -> None:
        """End the container now."""
        if self._launcher is not None:
            self._launcher.kill()

    def close(self) -> None:
        """Close the connections to the engine, and give up the place there."""
        launcher, slot = self._launcher, self._slot
        if launcher is not None:
            launcher.close()
        if slot is not None:
            slot.release()


class _AbandonedError(SandboxUnavailable):
    """The engine went out during the start; its thread goes on, uses the launcher, and closes it."""


def _abandon(stream: DockerStream, host: DockerHost, lost: Future[str]) -> None:
    stream.abandon(_lost(host, lost.result()))


def _lost(host: DockerHost, reason: str) -> str:
    return f"its Docker engine {host.label} is out: {reason}"


def _answers(host: DockerHost) -> bool:
    try:
        connect(host).close()
    except SandboxUnavailable:
        return False
    return True


def _launch(launcher: DockerLauncher, slot: Slot, boot: str) -> DockerStream:
    """Launch in another thread: if the engine goes out, its answer is not awaited, and what it has started is removed later."""
    launched = Completion[DockerStream]()
    start_thread(f"codeact-start-on-{slot.host.label}", _run, launched, launcher, boot)
    ends: tuple[Future[Any], ...] = (launched, slot.lost)
    wait(ends, return_when=FIRST_COMPLETED)
    if not launched.done():
        launcher.cancel()
        launched.add_done_callback(lambda done: _undo(launcher, done))
        raise _AbandonedError(f"while the sandbox was started, {_lost(slot.host, slot.lost.result())}")
    try:
        return launched.result()
    finally:
        # Its exception refers to this function's variables: together they would keep sockets open.
        del launched, ends


def _run(launched: Future[DockerStream], launcher: DockerLauncher, boot: str) -> None:
    try:
        launched.set_result(launcher.launch(boot))
    except BaseException as error:  # noqa: BLE001 - it is raised where the launch is awaited
        launched.set_exception(error)
        del launched  # as in `_launch`


def _undo(launcher: DockerLauncher, launched: Future[DockerStream]) -> None:
    if launched.exception() is None:
        launched.result().close()
        launcher.kill()
    launcher.close()
