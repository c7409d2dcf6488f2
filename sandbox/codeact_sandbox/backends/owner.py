"""Whether the process that owns a sandbox still runs, and what dead ones have left.

A process id alone is used again, so an owner is identified by its PID namespace, its id and its start time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.types.errors import SandboxError

logger = logging.getLogger("codeact_sandbox")

OwnerState = Literal["alive", "dead", "unknown"]
"""`unknown` for an owner that can't be judged from here: of another machine, another PID namespace, or before a restart."""

_PROC = Path("/proc")
_NOWHERE = "unknown"
_searched: set[tuple[int, str | None]] = set()


@dataclass(frozen=True)
class Leftover:
    """A sandbox or folder whose owner is gone, or can't be judged from here."""

    kind: str  # `container`, `bubblewrap` or `folder`
    name: str  # its name
    state: str  # its state or content, in a word or two
    owner: str  # machine and process that made it, as far as they are known
    owner_state: OwnerState  # `dead`, or `unknown`
    remove: Callable[[], bool]  # removes it with all that runs in it; False if it was removed meanwhile
    kept: bool = False  # whether its user wants it to persist after its end (`auto_remove=False`)

    @property
    def orphan(self) -> bool:
        """Whether its owner has ended."""
        return self.owner_state == "dead" and not self.kept

    @property
    def reason(self) -> str:
        """Why it exists, in a few words."""
        if self.kept:
            return f"kept on purpose (auto_remove=False) by {self.owner}"
        known = "is dead" if self.owner_state == "dead" else "can not be checked from here"
        return f"started by {self.owner}, which {known}"


def identity() -> str:
    """Return what identifies this process: boot and PID namespace, process id, start time."""
    pid = os.getpid()
    return f"{_place()}-{pid}-{start_time(pid)}"


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        return f"{boot}-{os.stat(_PROC / 'self/ns/pid').st_ino}"
    except OSError:  # not Linux
        return _NOWHERE


def start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot."""
    try:
        # The name may contain spaces and brackets, so count from its last bracket.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    return "ended" if fields[0] in {"Z", "X", "x"} else fields[19]


def owner_state(its_identity: str) -> OwnerState:
    """Return whether an owner still runs, from its `identity`."""
    place_and_pid, _, started = its_identity.rpartition("-")
    place, _, pid = place_and_pid.rpartition("-")
    if not pid.isdigit() or place == _NOWHERE or place != _place():
        return "unknown"
    now = start_time(int(pid))
    if now is not None:
        return "alive" if now == started else "dead"
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return "dead"
    except OSError:
        pass
    return "unknown"


def remove_once(place: str | None, find: Callable[[], Iterable[Leftover]]) -> None:
    """Remove what dead processes have left in a place in a thread, once per process; failures are logged."""
    key = (os.getpid(), place)
    if key not in _searched:
        _searched.add(key)
        start_thread("codeact-leftovers", _remove_orphans, find)


def search_again(place: str | None) -> None:
    """Let the next `remove_once` search a place again."""
    _searched.discard((os.getpid(), place))


def _remove_orphans(find: Callable[[], Iterable[Leftover]]) -> None:
    try:
        for item in find():
            if item.orphan:
                _try_to_remove(item)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not disturb the sandbox that is starting
        logger.warning("looking for what dead processes have left failed: %s", str(error))


def _try_to_remove(item: Leftover) -> None:
    try:
        if item.remove():
            logger.info("removed the %s %s of a dead process", item.kind, item.name)
    except (OSError, SandboxError) as error:
        logger.info("the %s %s of a dead process stays: %s", item.kind, item.name, str(error))
