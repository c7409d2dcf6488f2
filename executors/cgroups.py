"""Memory and CPU limits of a bubblewrap sandbox by a control group, where the kernel lets us make one."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .limits import Limits, parse_size

logger = logging.getLogger("autogen_codeact")

ROOT = Path("/sys/fs/cgroup")
PARENT = "autogen-codeact"
PERIOD_US = 100_000
REMOVE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Cgroup:
    """A control group, or with version 1 one in each hierarchy.

    Args:
        folders: Its folders.
        counter: File that counts the kills for want of memory, and where the runner looks for it.
    """

    folders: tuple[Path, ...]
    counter: tuple[Path, str]

    @classmethod
    def create(cls, name: str, limits: Limits) -> Cgroup | None:
        """Make a control group with the limits.

        Args:
            name: Its name.
            limits: What it may use.

        Returns:
            The group, or None where this process may not make one.
        """
        make = _version_2 if (ROOT / "cgroup.controllers").exists() else _version_1
        try:
            return make(name, limits)
        except OSError as error:
            logger.debug("no control group: %s", error)
            return None

    def add(self, pid: int) -> None:
        """Put a process, and all that it will start, into the group."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def counter_mount(self) -> list[str]:
        """Arguments of bubblewrap that show the counter to the runner."""
        return ["--ro-bind", str(self.counter[0]), self.counter[1]]

    def remove(self) -> None:
        """Remove the group once its processes are gone."""
        until = time.monotonic() + REMOVE_TIMEOUT_S
        for folder in self.folders:
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
                    time.sleep(0.005)


def _write(folder: Path, settings: Iterable[tuple[str, object]]) -> None:
    for name, value in settings:
        (folder / name).write_text(str(value))


def _version_1(name: str, limits: Limits) -> Cgroup:
    memory, cpu = (ROOT / controller / PARENT / name for controller in ("memory", "cpu"))
    for folder in (memory, cpu):
        folder.mkdir(parents=True)
    size = parse_size(limits.memory)
    _write(memory, [("memory.limit_in_bytes", size)])
    with contextlib.suppress(OSError):  # kernels without swap accounting have no such file
        _write(memory, [("memory.memsw.limit_in_bytes", size)])
    _write(cpu, [("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", int(limits.cpus * PERIOD_US))])
    return Cgroup((memory, cpu), (memory / "memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control"))


def _version_2(name: str, limits: Limits) -> Cgroup:
    parent = ROOT / PARENT
    if os.geteuid() == 0:
        (ROOT / "cgroup.subtree_control").write_text("+memory +cpu +pids")
    parent.mkdir(exist_ok=True)
    (parent / "cgroup.subtree_control").write_text("+memory +cpu +pids")
    folder = parent / name
    folder.mkdir()
    _write(
        folder,
        [
            ("memory.max", parse_size(limits.memory)),
            ("cpu.max", f"{int(limits.cpus * PERIOD_US)} {PERIOD_US}"),
            ("pids.max", limits.pids),
        ],
    )
    with contextlib.suppress(OSError):
        _write(folder, [("memory.swap.max", 0)])
    return Cgroup((folder,), (folder / "memory.events", "/sys/fs/cgroup/memory.events"))
