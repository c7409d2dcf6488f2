"""IPC objects that outlive their process: shared memory, semaphores, message queues (System V and POSIX)."""

import ctypes
import itertools
import os
import time

from . import system

IPC_RMID = 0
# Columns of /proc/sysvipc; the number of processes that have attached it is shared memory's alone.
IDENT = 1
ATTACHED = 6
POSIX_QUEUES = "/dev/mqueue"
POSIX_MEMORY = "/dev/shm"
LONGEST_S = 1.0
AT_ONCE = 1000

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


def remove_files(spare):
    """Remove the content of /dev/shm for at most `LONGEST_S`; the rest is removed after the next block.

    Args:
        spare: Names that are kept.
    """
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        try:
            with os.scandir(POSIX_MEMORY) as found:
                entries = list(itertools.islice((entry for entry in found if entry.name not in spare), AT_ONCE))
        except OSError:
            return  # it is somebody else's, who has closed it
        # The list is complete before the first is removed: there may be no end of them, and no memory for all of their names.
        if not sum(_remove_some(entry, until) for entry in entries):
            return


def _remove_some(entry, until):
    """Remove a file, or the direct content of a folder and the empty folder; return whether anything was removed.

    Nested folders are moved up to the top, so their depth does not matter.
    """
    try:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            return True
        os.chmod(entry.path, 0o700)
        with os.scandir(entry.path) as found:
            below = list(itertools.islice(found, AT_ONCE))
        for each in below:
            if time.monotonic() > until:
                return True
            if each.is_dir(follow_symlinks=False):
                os.chmod(each.path, 0o700)
                os.rename(each.path, os.path.join(POSIX_MEMORY, os.urandom(8).hex()))
            else:
                os.unlink(each.path)
        if len(below) < AT_ONCE:
            os.rmdir(entry.path)
        return True
    except OSError:
        return False


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
