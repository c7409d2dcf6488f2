"""Whether a process is writing the log of a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.folder import RunFolder

_LOCKS = Path("/proc/locks")


def is_being_written(folder: RunFolder) -> bool:
    """Return whether a process holds the lock of a run's log.

    Args:
        folder: The run's folder.
    """
    try:
        with folder.open_log() as log:
            number = os.fstat(log.fileno()).st_ino
            try:
                # To look does not take the lock, so it can't refuse it to a process that wants to write just now.
                return _is_listed(_LOCKS.read_text("ascii", "replace"), number)
            except OSError:
                return _is_taken(log.fileno())
    except RunFolderError:
        return False


def _is_listed(locks: str, number: int) -> bool:
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(number):
            return True
    return False


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
