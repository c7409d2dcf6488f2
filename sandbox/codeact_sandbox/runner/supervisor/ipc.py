"""IPC objects that outlive their process: shared memory, semaphores, message queues (System V and POSIX)."""

import ctypes
import os
import time

from ..shared import folders, system

IPC_RMID = 0
# Columns of /proc/sysvipc; only shared memory has a number of processes that have attached it.
ID_COLUMN = 1
ATTACHED_COLUMN = 6
POSIX_QUEUES = "/dev/mqueue"
POSIX_MEMORY = "/dev/shm"
MAX_S = 1.0

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
    """Remove the content of /dev/shm for at most `MAX_S`; the rest is removed after the next block."""
    until = time.monotonic() + MAX_S
    try:
        for _ in folders.remove_content(POSIX_MEMORY, keep):
            if time.monotonic() > until:
                return
    except OSError:
        return  # it belongs to another user


def remove_unused():
    """Remove what uses memory without a process: shared memory that none has attached, queues, semaphores."""
    count = _remove("msg", _entries("msg")) + _remove("sem", _entries("sem"))
    return count + _remove("shm", (words for words in _entries("shm") if words[ATTACHED_COLUMN] == b"0")) > 0


def _remove(kind, entries):
    count = 0
    for words in entries:
        _REMOVERS[kind](int(words[ID_COLUMN]))
        count += 1
    return count


def _entries(kind):
    if (system.read_again("/proc/sysvipc/" + kind) or b"").count(b"\n") <= 1:
        return  # only the names of the columns
    # One after the other: there may be tens of thousands, and no memory left for a list of them.
    try:
        with open("/proc/sysvipc/" + kind, "rb") as file:
            next(file, None)
            for line in file:
                yield line.split()
    except OSError:  # a kernel without them
        return
