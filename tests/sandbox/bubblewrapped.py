"""What the tests of bubblewrap share."""

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.abuse import oracles

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


def descendants(pid: int) -> set[int]:
    """All processes below one, without zombies."""
    return set(filter(alive, oracles.descendants(pid)))


def supervisors(pid: int) -> list[int]:
    """The supervisors of sandboxes among the living processes below one."""
    return [each for each in sorted(oracles.descendants(pid)) if _is_pid_one(each) and alive(each)]


def _is_pid_one(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False  # it has gone meanwhile
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
    return len(numbers) > 1 and numbers[-1] == "1"


def pid_one(pid: int, others: Collection[int] = ()) -> int:
    """The supervisor among the living processes below one; not one of the others."""
    found = [each for each in supervisors(pid) if each not in others]
    assert found, f"no sandbox below {pid}"
    return found[0]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
