"""What outlives its process and is no file: System V shared memory, semaphores and queues, and POSIX message queues."""

import ctypes
import os

IPC_RMID = 0
POSIX_QUEUES = "/dev/mqueue"

_libc = ctypes.CDLL(None, use_errno=True)
_REMOVERS = {
    "shm": lambda ident: _libc.shmctl(ident, IPC_RMID, None),
    "sem": lambda ident: _libc.semctl(ident, 0, IPC_RMID),
    "msg": lambda ident: _libc.msgctl(ident, IPC_RMID, None),
}


def remove_all():
    """Remove everything of the kind in this namespace; files in /dev/shm stay, as those in /tmp do."""
    for kind, remove in _REMOVERS.items():
        for ident in _idents("/proc/sysvipc/" + kind):
            remove(ident)
    try:
        names = os.listdir(POSIX_QUEUES)
    except OSError:
        return
    for name in names:
        try:
            os.unlink(os.path.join(POSIX_QUEUES, name))
        except OSError:
            continue


def _idents(path):
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()[1:]
    except OSError:  # a kernel without them
        return []
    return [int(line.split()[1]) for line in lines]
