"""What the tests of bubblewrap share."""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from codeact_sandbox.backends.bubblewrap.interpreter import HostUser, host_user

SYSTEM_PYTHON = Path("/usr/bin/python3")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user of this machine can read; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="codeact-test-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def sandbox_user() -> HostUser:
    """The user of this machine that sandboxes belong to."""
    return host_user()


def descendants(pid: int) -> set[int]:
    """All processes below one, without zombies."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents[int(name)] = int(parent)
    found, todo = set(), {pid}
    while todo:
        todo = {child for child, parent in parents.items() if parent in todo}
        found |= todo
    return found


def pid_one(pid: int, others: Collection[int] = ()) -> int:
    """The supervisor among the living processes below one, by its number in its own namespace; not one of the others."""
    for each in sorted(descendants(pid) - set(others)):
        try:
            status = Path(f"/proc/{each}/status").read_text()
        except OSError:
            continue  # it has gone meanwhile
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
        if len(numbers) > 1 and numbers[-1] == "1" and alive(each):  # not one that was killed, and not waited for
            return each
    raise AssertionError(f"no sandbox below {pid}")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cgroups() -> set[str]:
    """The control groups of all sandboxes on this machine; others' come and go while this looks."""
    return {
        f"{folder}/{name}"
        for folder, below, _ in os.walk("/sys/fs/cgroup")
        for name in below
        if Path(folder).name == "autogen-codeact"
    }
