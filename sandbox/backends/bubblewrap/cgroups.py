"""Memory, CPU and process limits of a bubblewrap sandbox by a control group, where the kernel lets us make one."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autogen_codeact.sandbox.limits import Limits, parse_size

logger = logging.getLogger("autogen_codeact")

ROOT = Path("/sys/fs/cgroup")
PARENT = "autogen-codeact"
PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
SOCKETS_SHARE = 8  # which part of the limit of memory the buffers of sockets may have, where they have one of their own
REMOVE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Cgroup:
    """A control group, or with version 1 one in each hierarchy.

    Args:
        folders: Its folders, by the place where the sandbox sees them.
        lacks: What it could not be made to bound.
    """

    folders: dict[str, Path]
    lacks: tuple[str, ...]

    @classmethod
    def create(cls, name: str, limits: Limits) -> Cgroup | None:
        """Make a control group with the limits, and remove those that dead processes have left behind.

        Args:
            name: Its name.
            limits: What it may use.

        Returns:
            The group, or None where this process may not make one that bounds memory.
        """
        make = _version_2 if (ROOT / "cgroup.controllers").exists() else _version_1
        try:
            return make(f"{name}.{owner_of(os.getpid())}", limits)
        except OSError as error:
            logger.debug("no control group: %s", error)
            return None

    def add(self, pid: int) -> None:
        """Put a process, and all that it will start, into the group."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def mount_arguments(self) -> list[str]:
        """Arguments of bubblewrap that show the group's own limits and counters in the sandbox, read-only."""
        return [part for place, folder in self.folders.items() for part in ("--ro-bind", str(folder), place)]

    def remove(self) -> None:
        """Remove the group once its processes are gone."""
        until = time.monotonic() + REMOVE_TIMEOUT_S
        for folder in self.folders.values():
            while True:
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if time.monotonic() > until:
                        logger.warning("the control group %s stays: %s", folder, error)
                        break
                    time.sleep(0.002)


def _version_1(name: str, limits: Limits) -> Cgroup:
    size = parse_size(limits.memory)
    steps: dict[str, Callable[[Path], None]] = {
        "memory": lambda folder: _limit_memory_1(folder, size),
        "cpu": lambda folder: _write(
            folder, [("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", max(LEAST_QUOTA_US, _quota(limits)))]
        ),
        "pids": lambda folder: _write(folder, [("pids.max", limits.pids)]),
    }
    folders: dict[str, Path] = {}
    lacks = []
    for controller, step in steps.items():
        try:
            folders[f"/sys/fs/cgroup/{controller}"] = _make(ROOT / controller / PARENT, name, step)
        except OSError:
            if controller == "memory":
                raise
            lacks.append(controller)
    with contextlib.suppress(OSError):  # one folder with cpu on many machines; it bounds nothing, so nothing is lacking
        folders["/sys/fs/cgroup/cpuacct"] = _make(ROOT / "cpuacct" / PARENT, name, lambda folder: None)
    return Cgroup(folders, tuple(lacks))


def _limit_memory_1(folder: Path, size: int) -> None:
    _write(folder, [("memory.limit_in_bytes", size)])
    # Version 2 counts buffers of sockets as memory; here they have a bound of their own, beside that of memory.
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
    lacks = []
    for controller in ("cpu", "pids"):
        try:
            _allow(above, (controller,))
            _allow(parent, (controller,))
        except OSError:
            lacks.append(controller)
    settings: list[tuple[str, object]] = [("memory.max", parse_size(limits.memory))]
    if "cpu" not in lacks:
        settings.append(("cpu.max", f"{max(LEAST_QUOTA_US, _quota(limits))} {PERIOD_US}"))
    if "pids" not in lacks:
        settings.append(("pids.max", limits.pids))

    def step(folder: Path) -> None:
        _write(folder, settings)
        with contextlib.suppress(OSError):  # kernels without swap accounting have no such file
            _write(folder, [("memory.swap.max", 0)])

    return Cgroup({"/sys/fs/cgroup": _make(parent, name, step)}, tuple(lacks))


def _delegated() -> Path:
    """Where this process may make groups: at the top as root, else beside its own, which systemd lets its users do."""
    if os.geteuid() == 0:
        return ROOT
    own = Path("/proc/self/cgroup").read_text().partition("0::")[2].splitlines()[0]
    folder = (ROOT / own.lstrip("/")).parent if own != "/" else ROOT
    # Whoever moves a process from one group to another must be allowed to in the one that holds both.
    if not os.access(folder / "cgroup.procs", os.W_OK):
        raise PermissionError(f"{folder} is not this user's")
    return folder


def _allow(folder: Path, controllers: Iterable[str]) -> None:
    """Have the groups below a folder bound something."""
    control = folder / "cgroup.subtree_control"
    missing = set(controllers) - set(control.read_text().split())
    if missing:
        control.write_text(" ".join(f"+{controller}" for controller in sorted(missing)))


def _make(parent: Path, name: str, step: Callable[[Path], None]) -> Path:
    """Make one folder and set it up; nothing is left where that fails."""
    parent.mkdir(exist_ok=True)
    _sweep(parent)
    folder = parent / name
    folder.mkdir()
    try:
        step(folder)
    except OSError:
        folder.rmdir()
        raise
    return folder


def _write(folder: Path, settings: Iterable[tuple[str, object]]) -> None:
    for name, value in settings:
        (folder / name).write_text(str(value))


def _quota(limits: Limits) -> int:
    return int(limits.cpus * PERIOD_US)


def owner_of(pid: int) -> str:
    """What tells a process from every other one since the machine started, those in other containers included."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{namespace}-{pid}-{started}"


def _sweep(parent: Path) -> None:
    """Remove the groups whose owner is dead. One that still has processes can't be removed, so no harm is done."""
    here = os.stat("/proc/self/ns/pid").st_ino
    for folder in parent.iterdir():
        owner = folder.name.rpartition(".")[2]
        namespace, _, rest = owner.partition("-")
        pid = rest.partition("-")[0]
        if namespace != str(here) or not pid.isdigit():
            continue
        try:
            alive = owner_of(int(pid)) == owner
        except OSError:
            alive = False
        if not alive:
            with contextlib.suppress(OSError):
                folder.rmdir()
