"""IPC objects that outlive their process: shared memory, semaphores, message queues (System V and POSIX)."""

import ctypes
import os
import time

from . import folders, system

IPC_RMID = 0
# Columns of /proc/sysvipc; the number of processes that have attached it is shared memory's alone.
IDENT = 1
ATTACHED = 6
POSIX_QUEUES = "/dev/mqueue"
POSIX_MEMORY = "/dev/shm"
LONGEST_S = 1.0

_libc = ctypes.CDLL(None, use_errno=True)
_REMOVERS = {
    "shm": lambda ident: _libc.shmctl(ident, IPC_RMID, None),
    "sem": lambda ident: _libc.semctl(ident, 0, IPC_RMID),
    "msg": lambda ident: _libc.msgctl(ident, IPC_RMID, None),
}


def remove_all():
    """Remove all IPC objects of this namespace, except files in /dev/shm: see `remove_files`."""
    for kind in _REMOVERS:
        _remove(kind, _entries(kind))
    try:
        names = os.listdir(POSIX_QUEUES)
    except OSError:
        return
    for name in names:
        try:
            os.unlink(os.path.join(POSIX_QUEUES, name))
        except OSError:
            continue


def remove_files(keep):
    """Remove the content of /dev/shm for at most `LONGEST_S`; the rest is removed after the next block.

    Args:
        keep: Names that stay.
    """
    until = time.monotonic() + LONGEST_S
    try:
        for _ in folders.remove_content(POSIX_MEMORY, keep):
            if time.monotonic() > until:
                return
    except OSError:
        return  # it is not this user's, and closed


def remove_unused():
    """Remove what holds memory though no process does: shared memory that none has attached, queues, semaphores.

    Returns:
        Whether there was anything.
    """
    count = _remove("msg", _entries("msg")) + _remove("sem", _entries("sem"))
    return count + _remove("shm", (words for words in _entries("shm") if words[ATTACHED] == b"0")) > 0


def _remove(kind, entries):
    count = 0
    for words in entries:
        _REMOVERS[kind](int(words[IDENT]))
        count += 1
    return count


def _entries(kind):
    if (system.read_small("/proc/sysvipc/" + kind) or b"").count(b"\n") <= 1:
        return  # the names of the columns
    # One after the other: there may be tens of thousands, and no memory left for a list of them.
    try:
        with open("/proc/sysvipc/" + kind, "rb") as file:
            next(file, None)
            for line in file:
                yield line.split()
    except OSError:  # a kernel without them
        return
