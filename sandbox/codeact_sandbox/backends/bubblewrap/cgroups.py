"""Memory, CPU and process limits of a bubblewrap sandbox by a control group, where this process may make one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codeact_sandbox.backends.owner import Leftover, identity, owner_state
from codeact_sandbox.types.errors import SandboxStartError
from codeact_sandbox.types.limits import Limits
from codeact_sandbox.types.text import format_count

logger = logging.getLogger("codeact_sandbox")

ROOT = Path("/sys/fs/cgroup")
PARENT = "autogen-codeact"
PERIOD_US = 100_000
MIN_QUOTA_US = 1000
# Buffers of sockets may have this part of the memory limit again, where they have a limit of their own.
SOCKETS_SHARE = 8
REMOVE_TIMEOUT_S = 2.0
END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Cgroup:
    """A control group, or with version 1 one in each hierarchy."""

    folders: dict[str, Path]  # its folders, by their paths in the sandbox
    unlimited: tuple[str, ...]  # the resources that it could not be made to limit

    @classmethod
    def create(cls, name: str, limits: Limits) -> Cgroup | None:
        """Make a control group with the limits; None where this process may not make one that bounds memory."""
        make = _version_2 if (ROOT / "cgroup.controllers").exists() else _version_1
        try:
            return make(f"{name}.{identity()}", limits)
        except OSError as error:
            logger.debug("no control group: %s", error)
            return None

    def add(self, pid: int) -> None:
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        for folder in self.folders.values():
            try:
                remove_folder(folder, REMOVE_TIMEOUT_S)
            except OSError as error:
                logger.warning("the control group %s stays: %s", folder, error)


def remove_folder(folder: Path, timeout_s: float, before_each: Callable[[], object] = lambda: None) -> bool:
    """Try to remove a folder of a control group until its processes are gone; False if it did not exist any more."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            before_each()
            folder.rmdir()
        except FileNotFoundError:
            return False
        except OSError as error:
            if isinstance(error, PermissionError) or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return True


def _version_1(name: str, limits: Limits) -> Cgroup:
    size, quota_us = limits.memory_bytes, max(MIN_QUOTA_US, int(limits.cpus * PERIOD_US))
    settings: dict[str, dict[str, object]] = {
        "memory": {"memory.limit_in_bytes": size},
        "cpu": {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us},
        "pids": {"pids.max": limits.pids},
    }
    # Version 2 counts buffers of sockets as memory; here they have a limit of their own.
    optional = {"memory.memsw.limit_in_bytes": size, "memory.kmem.tcp.limit_in_bytes": size // SOCKETS_SHARE}
    folders: dict[str, Path] = {}
    unlimited = []
    for controller, files in settings.items():
        try:
            folder = _make_group(ROOT / controller / PARENT, name, files, optional if controller == "memory" else {})
            folders[f"/sys/fs/cgroup/{controller}"] = folder
        except OSError:
            if controller == "memory":
                raise
            unlimited.append(controller)
    with contextlib.suppress(OSError):  # one folder with cpu on many machines; it limits nothing, so nothing is missing
        folders["/sys/fs/cgroup/cpuacct"] = _make_group(ROOT / "cpuacct" / PARENT, name, {}, {})
    return Cgroup(folders, tuple(unlimited))


def _version_2(name: str, limits: Limits) -> Cgroup:
    settings: dict[str, dict[str, object]] = {
        "memory": {"memory.max": limits.memory_bytes},
        "cpu": {"cpu.max": f"{max(MIN_QUOTA_US, int(limits.cpus * PERIOD_US))} {PERIOD_US}"},
        "pids": {"pids.max": limits.pids},
    }
    above = _parent_group()
    parent = above / PARENT
    allowed: dict[str, object] = {}
    unlimited = []
    for controller, files in settings.items():
        try:
            _allow(above, controller)
            parent.mkdir(exist_ok=True)
            _allow(parent, controller)
            allowed |= files
        except OSError:
            if controller == "memory":
                raise
            unlimited.append(controller)
    return Cgroup({"/sys/fs/cgroup": _make_group(parent, name, allowed, {"memory.swap.max": 0})}, tuple(unlimited))


def _parent_group() -> Path:
    """Return where this process may make groups: at the top as root, else beside its own, as systemd allows its users."""
    if os.geteuid() == 0:
        return ROOT
    own = Path("/proc/self/cgroup").read_text().partition("0::")[2].splitlines()[0]
    folder = (ROOT / own.lstrip("/")).parent if own != "/" else ROOT
    # Moving a process between two groups needs write permission for the group above both.
    if not os.access(folder / "cgroup.procs", os.W_OK):
        raise PermissionError(f"{folder} is not this user's")
    return folder


def _allow(folder: Path, controller: str) -> None:
    control = folder / "cgroup.subtree_control"
    if controller not in control.read_text().split():
        control.write_text(f"+{controller}")


def _make_group(parent: Path, name: str, settings: Mapping[str, object], optional: Mapping[str, object]) -> Path:
    """Make a folder and write its settings, then those that some kernels do not have; it is removed again if that fails."""
    parent.mkdir(exist_ok=True)
    folder = parent / name
    folder.mkdir()
    try:
        for file, value in settings.items():
            (folder / file).write_text(str(value))
    except OSError:
        folder.rmdir()
        raise
    for file, value in optional.items():
        with contextlib.suppress(OSError):
            (folder / file).write_text(str(value))
    return folder


def leftover_groups(*, kill: bool = True) -> list[Leftover]:
    """List the control groups of sandboxes whose owner does not run in this PID namespace now, by name.

    With `kill` their removal ends their processes, else it waits until these have ended by themselves.
    """
    found: dict[str, list[Path]] = {}
    for parent, below, _ in os.walk(ROOT):
        if Path(parent).name == PARENT:
            for folder in below:
                found.setdefault(folder, []).append(Path(parent, folder))
            below.clear()
    return [item for name in sorted(found) if (item := _leftover(name, found[name], kill)) is not None]


def _leftover(group: str, folders: list[Path], kill: bool) -> Leftover | None:
    name, _, its_owner = group.rpartition(".")
    state = owner_state(its_owner)
    if not name or state == "alive":
        return None
    number = its_owner.split("-")[2] if its_owner.count("-") == 3 else its_owner
    count = len({pid for folder in folders for pid in _processes(folder)})
    content = format_count(count, "process", "processes") if count else "empty"
    return Leftover("bubblewrap", name, content, f"process {number}", state, lambda: _remove(folders, kill))


def _remove(folders: list[Path], kill: bool) -> bool:
    """Remove a group; False if it did not exist any more."""
    removed = False
    for folder in folders:
        try:
            removed |= remove_folder(folder, END_TIMEOUT_S, partial(_kill_processes, folder) if kill else lambda: None)
        except OSError as error:
            raise SandboxStartError(f"the control group {folder} can't be removed: {error.strerror}") from error
    return removed


def _processes(folder: Path) -> set[int]:
    try:
        # 0 stands for a process of another PID namespace.
        return {int(line) for line in (folder / "cgroup.procs").read_text().split()} - {0}
    except OSError:
        return set()


def _kill_processes(folder: Path) -> None:
    for pid in _processes(folder):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                # Its number may belong to another process since the list was read.
                if pid in _processes(folder):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
