"""System V objects outlive their process: after an out-of-memory kill they would fill the memory for good."""

import ctypes

from ..shared import system

IPC_RMID = 0
# Columns of /proc/sysvipc; only shared memory has a number of processes that have attached it.
ID_COLUMN = 1
ATTACHED_COLUMN = 6

_libc = ctypes.CDLL(None, use_errno=True)
_REMOVERS = {
    "shm": lambda ident: _libc.shmctl(ident, IPC_RMID, None),
    "sem": lambda ident: _libc.semctl(ident, 0, IPC_RMID),
    "msg": lambda ident: _libc.msgctl(ident, IPC_RMID, None),
}


def remove_unused():
    """Remove shared memory that no process has attached, queues and semaphores; return whether there were some."""
    count = 0
    for kind, remove in _REMOVERS.items():
        for words in _entries(kind):
            if kind != "shm" or words[ATTACHED_COLUMN] == b"0":
                remove(int(words[ID_COLUMN]))
                count += 1
    return count > 0


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
