"""Temporary folders of executors, and the removal of those whose process was killed.

The process that owns a folder locks it, and the kernel releases the lock when that process ends in any way. So a folder that
can be locked has no owner any more, also if its owner ran in another container or before a restart.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("autogen_codeact")

PREFIX = "codeact-work-"
# Whole, since a folder that somebody else has made, and perhaps called codeact-work-1, must not be taken for one.
_NAME = re.compile(rf"{PREFIX}\d+-[a-z0-9_]{{8}}")
SWEEP_TIMEOUT_S = 5.0
REMOVE_TIMEOUT_S = 60.0
_AT_ONCE = 1000
_swept: set[tuple[int, str]] = set()
_sweeping = threading.Lock()


def make_folder() -> tuple[Path, int | None]:
    """Make a folder for this process.

    Returns:
        The folder, and the descriptor that holds its lock; None where the system has no such locks.

    Raises:
        OSError: No folder can be made.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        if sys.platform == "win32":
            return path, None
        try:
            lock = _locked(path)
        except BlockingIOError:
            # A sweep in another process locked it first, and removes it.
            continue
        except OSError:
            return path, None
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)


def remove_folder(path: Path, lock: int | None) -> None:
    """Remove a folder that this process has made, and release its lock; what can't be removed stays.

    Args:
        path: The folder.
        lock: The descriptor that `make_folder` returned.
    """
    if lock is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        _empty(lock, math.inf)
        os.rmdir(path)
    os.close(lock)


def abandoned_folders() -> list[Path]:
    """List the folders of this user whose process has ended, sorted by name. This call blocks."""
    return sorted(_find())


def owner_of(path: Path) -> str:
    """The id of the process that made a folder, for display."""
    return path.name.removeprefix(PREFIX).partition("-")[0]


def remove_abandoned(path: Path, timeout_s: float = REMOVE_TIMEOUT_S) -> bool:
    """Remove a folder whose process has ended. This call blocks.

    Args:
        path: One of `abandoned_folders`.
        timeout_s: Seconds after which the removal stops; the next attempt continues.

    Returns:
        Whether this call removed it; False if it does not exist or has another owner.

    Raises:
        OSError: It can't be removed, or not in that time (`TimeoutError`).
    """
    with _taken(path) as lock:
        if lock is None:
            return False
        if not _empty(lock, time.monotonic() + timeout_s):
            raise TimeoutError(f"{path} contains too much to be removed in {timeout_s:g} s")
        os.rmdir(path)
    return True


def sweep_in_background() -> None:
    """Remove the folders of killed processes in a thread, once per process, for `SWEEP_TIMEOUT_S` at most."""
    here = (os.getpid(), tempfile.gettempdir())
    with _sweeping:
        if here in _swept:
            return
        _swept.add(here)
    threading.Thread(target=_sweep, name="codeact-sweep-folders", daemon=True).start()


def _sweep() -> None:
    until = time.monotonic() + SWEEP_TIMEOUT_S
    for path in _find(until):
        try:
            remove_abandoned(path, until - time.monotonic())
        except OSError as error:
            logger.info("the temporary folder of a process that has ended stays: %s", error)


def _find(until: float = math.inf) -> Iterator[Path]:
    """The folders of this user that no process has locked; the folder above may have any number of other entries."""
    if sys.platform == "win32":
        return
    place = tempfile.gettempdir()
    with contextlib.suppress(OSError), os.scandir(place) as found:
        for entry in found:
            if time.monotonic() > until:
                return
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                path = Path(place, entry.name)
                with _taken(path) as lock:
                    abandoned = lock is not None
                if abandoned:
                    yield path


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[int | None]:
    """Lock a folder of this user and yield its descriptor; None if a process has locked it or another user owns it."""
    try:
        lock = _locked(path)
    except OSError:
        yield None
        return
    try:
        # Any user can create this name in a shared temporary folder, and the folder may have been removed since.
        found = os.fstat(lock)
        yield lock if found.st_uid == os.geteuid() and found.st_nlink else None
    finally:
        os.close(lock)


def _locked(path: Path) -> int:
    if sys.platform == "win32":
        raise OSError("no locks")
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _empty(root: int, until: float) -> bool:
    """Remove the content of a folder, without following links; False if the time is over.

    Nested folders are moved up to the top, so neither their depth nor the length of their paths matters.
    """
    fresh = itertools.count()
    while entries := _some(root):
        for name, is_folder in entries:
            if time.monotonic() > until:
                return False
            if not is_folder:
                os.unlink(name, dir_fd=root)
                continue
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
            try:
                while (below := _some(inner)) and time.monotonic() <= until:
                    for each, is_folder_too in below:
                        if is_folder_too:
                            moved = f"{PREFIX}{time.monotonic_ns()}-{next(fresh)}"
                            os.rename(each, moved, src_dir_fd=inner, dst_dir_fd=root)
                        else:
                            os.unlink(each, dir_fd=inner)
            finally:
                os.close(inner)
            if not below:
                os.rmdir(name, dir_fd=root)
    return True


def _some(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(found, _AT_ONCE)]
