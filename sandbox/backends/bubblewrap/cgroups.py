"""Memory, CPU and process limits of a bubblewrap sandbox by a control group, where this process may make one."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autogen_codeact.sandbox.backends import owner
from autogen_codeact.sandbox.backends.owner import OwnerState
from autogen_codeact.sandbox.limits import Limits, parse_size

logger = logging.getLogger("autogen_codeact")

ROOT = Path("/sys/fs/cgroup")
PARENT = "autogen-codeact"
PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
SOCKETS_SHARE = (
    8  # buffers of sockets may have this part of the memory limit again, where they have a limit of their own
)
REMOVE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Cgroup:
    """A control group, or with version 1 one in each hierarchy.

    Args:
        folders: Its folders, by their paths in the sandbox.
        unlimited: The resources that it could not be made to limit.
    """

    folders: dict[str, Path]
    unlimited: tuple[str, ...]

    @classmethod
    def create(cls, name: str, limits: Limits) -> Cgroup | None:
        """Make a control group with the limits, and remove those of dead processes.

        Args:
            name: Its name.
            limits: What it may use.

        Returns:
            The group, or None where this process may not make one that bounds memory.
        """
        make = _version_2 if (ROOT / "cgroup.controllers").exists() else _version_1
        try:
            pid = os.getpid()
            return make(f"{name}.{owner.pid_namespace()}-{pid}-{owner.start_time(pid)}", limits)
        except OSError as error:
            logger.debug("no control group: %s", error)
            return None

    def add(self, pid: int) -> None:
        """Move a process, and all that it will start, into the group."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def mount_arguments(self) -> list[str]:
        """Return arguments of bubblewrap that show the group's own limits and counters in the sandbox, read-only."""
        return [part for path, folder in self.folders.items() for part in ("--ro-bind", str(folder), path)]

    def remove(self) -> None:
        """Remove the group once its processes are gone."""
        for folder in self.folders.values():
            try:
                remove_folder(folder, REMOVE_TIMEOUT_S)
            except OSError as error:
                logger.warning("the control group %s stays: %s", folder, error)


def remove_folder(folder: Path, timeout_s: float, before_each: Callable[[], object] = lambda: None) -> bool:
    """Remove one folder of a control group, again and again until its processes are gone.

    Args:
        folder: The folder.
        timeout_s: Seconds after which the last error is raised.
        before_each: Called before each attempt; its errors count like those of the removal.

    Returns:
        Whether this call removed it; False if it did not exist any more.

    Raises:
        OSError: It can't be removed; at once if permission is missing.
    """
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
            time.sleep(0.002)
        else:
            return True


def _version_1(name: str, limits: Limits) -> Cgroup:
    size = parse_size(limits.memory)
    set_ups: dict[str, Callable[[Path], None]] = {
        "memory": lambda folder: _limit_memory_1(folder, size),
        "cpu": lambda folder: _write(
            folder, [("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", max(LEAST_QUOTA_US, _quota(limits)))]
        ),
        "pids": lambda folder: _write(folder, [("pids.max", limits.pids)]),
    }
    folders: dict[str, Path] = {}
    unlimited = []
    for controller, set_up in set_ups.items():
        try:
            folders[f"/sys/fs/cgroup/{controller}"] = _make(ROOT / controller / PARENT, name, set_up)
        except OSError:
            if controller == "memory":
                raise
            unlimited.append(controller)
    with contextlib.suppress(OSError):  # one folder with cpu on many machines; it limits nothing, so nothing is missing
        folders["/sys/fs/cgroup/cpuacct"] = _make(ROOT / "cpuacct" / PARENT, name, lambda folder: None)
    return Cgroup(folders, tuple(unlimited))


def _limit_memory_1(folder: Path, size: int) -> None:
    _write(folder, [("memory.limit_in_bytes", size)])
    # Version 2 counts buffers of sockets as memory; here they have a limit of their own.
    for file, limit in (
        ("memory.memsw.limit_in_bytes", size),
        ("memory.kmem.tcp.limit_in_bytes", size // SOCKETS_SHARE),
    ):
        with contextlib.suppress(OSError):  # kernels that don't account for it have no such file
            _write(folder, [(file, limit)])


def _version_2(name: str, limits: Limits) -> Cgroup:
    above = _delegated()
    parent = above / PARENT
    _allow(above, ("memory",))
    parent.mkdir(exist_ok=True)
    _allow(parent, ("memory",))
    unlimited = []
    for controller in ("cpu", "pids"):
        try:
            _allow(above, (controller,))
            _allow(parent, (controller,))
        except OSError:
            unlimited.append(controller)
    settings: list[tuple[str, object]] = [("memory.max", parse_size(limits.memory))]
    if "cpu" not in unlimited:
        settings.append(("cpu.max", f"{max(LEAST_QUOTA_US, _quota(limits))} {PERIOD_US}"))
    if "pids" not in unlimited:
        settings.append(("pids.max", limits.pids))

    def set_up(folder: Path) -> None:
        _write(folder, settings)
        with contextlib.suppress(OSError):  # kernels without swap accounting have no such file
            _write(folder, [("memory.swap.max", 0)])

    return Cgroup({"/sys/fs/cgroup": _make(parent, name, set_up)}, tuple(unlimited))


def _delegated() -> Path:
    """Return where this process may make groups: at the top as root, else beside its own, as systemd allows its users."""
    if os.geteuid() == 0:
        return ROOT
    own = Path("/proc/self/cgroup").read_text().partition("0::")[2].splitlines()[0]
    folder = (ROOT / own.lstrip("/")).parent if own != "/" else ROOT
    # Moving a process between two groups needs write permission for the group above both.
    if not os.access(folder / "cgroup.procs", os.W_OK):
        raise PermissionError(f"{folder} is not this user's")
    return folder


def _allow(folder: Path, controllers: Iterable[str]) -> None:
    """Let the groups below a folder limit something."""
    control = folder / "cgroup.subtree_control"
    missing = set(controllers) - set(control.read_text().split())
    if missing:
        control.write_text(" ".join(f"+{controller}" for controller in sorted(missing)))


def _make(parent: Path, name: str, set_up: Callable[[Path], None]) -> Path:
    """Make one folder and set it up; nothing is left where that fails."""
    parent.mkdir(exist_ok=True)
    _remove_orphans(parent)
    folder = parent / name
    folder.mkdir()
    try:
        set_up(folder)
    except OSError:
        folder.rmdir()
        raise
    return folder


def _write(folder: Path, settings: Iterable[tuple[str, object]]) -> None:
    for name, value in settings:
        (folder / name).write_text(str(value))


def _quota(limits: Limits) -> int:
    return int(limits.cpus * PERIOD_US)


def owner_state(name: str) -> OwnerState:
    """Return whether the owner of a control group still runs.

    Args:
        name: The owner's part of the group's name: PID namespace, process id, start time.
    """
    namespace, _, rest = name.partition("-")
    pid, _, started = rest.partition("-")
    if not pid.isdigit() or namespace != owner.pid_namespace():
        return "unknown"
    return owner.owner_state(int(pid), started)


def _remove_orphans(parent: Path) -> None:
    """Remove the groups whose owner is dead. One that still has processes can't be removed, so no harm is done."""
    for folder in parent.iterdir():
        if owner_state(folder.name.rpartition(".")[2]) == "dead":
            with contextlib.suppress(OSError):
                folder.rmdir()
