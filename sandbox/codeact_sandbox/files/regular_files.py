"""Opening files whose folder others may write to."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

_BUFFER = 64 * 1024


def open_regular(path: Path | str, *, folder: int | None = None) -> BufferedReader:
    """Open a regular file for reading; no symbolic link is followed at its name, and no named pipe is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return BufferedReader(FileIO(descriptor), _BUFFER)
