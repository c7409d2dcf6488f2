"""Whether a process is writing the log of a run."""

from __future__ import annotations

import os
from pathlib import Path

from autogen_codeact.runs import store
from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.folder import RunFolder

_LOCKS = Path("/proc/locks")


def is_being_written(folder: RunFolder) -> bool:
    """Return whether a process holds the lock of a run's log.

    Args:
        folder: The run's folder.
    """
    try:
        # To look does not take the lock, so a process that wants to write just now gets it. A viewer looks often.
        locks = _LOCKS.read_text("ascii", "replace")
    except OSError:
        return store.is_being_written(folder.path)
    try:
        with folder.open_log() as log:
            number = str(os.fstat(log.fileno()).st_ino)
    except RunFolderError:
        return False
    lines = (line.split() for line in locks.splitlines())
    return any(fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == number for fields in lines if len(fields) > 5)
