"""Control groups of bubblewrap sandboxes that outlived their owner: finding them and removing them."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from autogen_codeact.sandbox.backends.bubblewrap.cgroups import PARENT, ROOT, owner_state, remove_folder
from autogen_codeact.sandbox.backends.owner import OwnerState
from autogen_codeact.sandbox.types.errors import SandboxStartError

REMOVE_TIMEOUT_S = 5.0


@dataclass
class LeftoverGroup:
    """A control group whose owner is gone, or belongs to another PID namespace.

    Args:
        name: The sandbox's name.
        owner: Number of the process that made it.
        owner_state: `dead`, or `unknown` for an owner that can't be seen from here.
        folders: The group; with version 1 of control groups, one folder in each hierarchy.
    """

    name: str
    owner: str
    owner_state: OwnerState
    folders: list[Path] = field(default_factory=list)

    @property
    def processes(self) -> set[int]:
        """Its processes that run now."""
        return {pid for folder in self.folders for pid in _processes(folder)}


def leftover_groups(root: Path = ROOT) -> list[LeftoverGroup]:
    """List the control groups of sandboxes whose owner does not run in this PID namespace now."""
    found: dict[str, LeftoverGroup] = {}
    for parent, below, _ in os.walk(root):
        if Path(parent).name != PARENT:
            continue
        for folder in sorted(below):
            name, _, owner = folder.rpartition(".")
            state = owner_state(owner)
            if name and state != "alive":
                number = owner.split("-")[1] if owner.count("-") == 2 else owner
                found.setdefault(folder, LeftoverGroup(name, number, state)).folders.append(Path(parent, folder))
        below.clear()
    return sorted(found.values(), key=lambda group: group.name)


def remove_group(group: LeftoverGroup) -> bool:
    """End the processes of a control group and remove it; False if it did not exist any more."""
    removed = False
    for folder in group.folders:

        def kill_processes(folder: Path = folder) -> None:
            for pid in _processes(folder):
                _kill(pid, folder)

        try:
            removed |= remove_folder(folder, REMOVE_TIMEOUT_S, kill_processes)
        except OSError as error:
            raise SandboxStartError(f"the control group {folder} can't be removed: {error.strerror}") from error
    return removed


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
            # Its number may belong to another process since the list was read.
            if pid in _processes(folder):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
