"""Control groups of bubblewrap sandboxes that outlived their owner: finding them and removing them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from autogen_codeact.sandbox.backends.bubblewrap.cgroups import PARENT, ROOT, owner_of
from autogen_codeact.sandbox.backends.docker.owner import ENDED, Fate, exists
from autogen_codeact.sandbox.errors import SandboxStartError

REMOVE_TIMEOUT_S = 5.0


@dataclass
class LeftoverGroup:
    """A control group whose owner is gone, or belongs to another PID namespace.

    Args:
        name: The sandbox's name.
        owner: Number of the process that made it.
        owner_fate: `dead`, or `unknown` for an owner that can't be seen from here.
        folders: The group; with version 1 of control groups, one folder in each hierarchy.
    """

    name: str
    owner: str
    owner_fate: Fate
    folders: list[Path] = field(default_factory=list)

    @property
    def processes(self) -> set[int]:
        """Its processes that live now."""
        return {pid for folder in self.folders for pid in _processes(folder)}


def leftover_groups(root: Path = ROOT) -> list[LeftoverGroup]:
    """List the control groups of sandboxes whose owner does not live in this PID namespace now.

    Args:
        root: Where control groups are mounted.

    Returns:
        Those of dead owners and those of owners that can't be judged, by name.
    """
    found: dict[str, LeftoverGroup] = {}
    for folder in _groups(root):
        name, _, owner = folder.name.rpartition(".")
        judged = fate(owner)
        if name and judged != "alive":
            number = owner.split("-")[1] if owner.count("-") == 2 else owner
            group = found.setdefault(folder.name, LeftoverGroup(name, number, judged))
            group.folders.append(folder)
    return sorted(found.values(), key=lambda group: group.name)


def fate(owner: str) -> Fate:
    """Judge whether the owner of a control group still lives.

    Args:
        owner: What the group's name says of it: PID namespace, process id, start time.
    """
    namespace, _, rest = owner.partition("-")
    pid = rest.partition("-")[0]
    if not pid.isdigit() or namespace != str(os.stat("/proc/self/ns/pid").st_ino):
        return "unknown"
    try:
        ended = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in ENDED
        return "alive" if not ended and owner_of(int(pid)) == owner else "dead"
    except OSError:
        return "unknown" if exists(int(pid)) else "dead"


def remove_group(group: LeftoverGroup) -> bool:
    """End the processes of a control group and remove it.

    Args:
        group: The group.

    Returns:
        Whether this call removed it; False where it was gone already.

    Raises:
        SandboxStartError: It could not be removed, for lack of permission or because a process does not end.
    """
    until = time.monotonic() + REMOVE_TIMEOUT_S
    removed = False
    for folder in group.folders:
        while True:
            try:
                for pid in _processes(folder):
                    _kill(pid, folder)
                folder.rmdir()
                removed = True
                break
            except FileNotFoundError:
                break
            except OSError as error:
                if isinstance(error, PermissionError) or time.monotonic() > until:
                    raise SandboxStartError(f"the control group {folder} can't be removed: {error.strerror}") from error
                time.sleep(0.01)
    return removed


def _groups(root: Path) -> Iterator[Path]:
    for place, below, _ in os.walk(root):
        if Path(place).name == PARENT:
            yield from (Path(place, name) for name in sorted(below))
            below.clear()


def _processes(folder: Path) -> set[int]:
    try:
        # 0 stands for a process of another PID namespace.
        return {int(line) for line in (folder / "cgroup.procs").read_text().split()} - {0}
    except OSError:
        return set()


def _kill(pid: int, folder: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # Its number may be another one's since the list was read.
            if pid in _processes(folder):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
