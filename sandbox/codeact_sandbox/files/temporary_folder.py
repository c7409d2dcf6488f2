"""Temporary folders of executors, and the removal of those whose process was killed.

The process that owns a folder locks it, and the kernel releases the lock when that process ends in any way. So a folder that
can be locked has no owner any more, also if its owner ran in another container or before a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from codeact_sandbox.runner.shared import folders
from codeact_sandbox.types.errors import SandboxFileError

logger = logging.getLogger("codeact_sandbox")

PREFIX = "codeact-work-"
# The whole name, so that a folder of the user, such as codeact-work-1, never matches.
_NAME = re.compile(rf"{PREFIX}\d+-[a-z0-9_]{{8}}")
REMOVE_TIMEOUT_S = 60.0
_remove_content: Callable[[Path], Iterator[None]] = folders.remove_content
_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """The folder of an executor without `work_dir`; removed with the process, or at the next start if that was killed."""

    def __init__(self) -> None:
        try:
            self.path, lock = make_folder()
        except OSError as error:
            problem = SandboxFileError(
                f"No temporary work_dir can be made in {tempfile.gettempdir()}: {error.strerror}. Free some space, or pass "
                "`work_dir=`."
            )
            problem.errno = error.errno
            raise problem from error
        self._remove = weakref.finalize(self, _remove_own, os.getpid(), self.path, lock)

    async def remove(self) -> None:
        """Remove it with its content in a thread, which continues after `REMOVE_TIMEOUT_S`."""
        removing = asyncio.get_running_loop().run_in_executor(None, self._remove)
        done, _ = await asyncio.wait({removing}, timeout=REMOVE_TIMEOUT_S)
        if not done:
            logger.warning("the temporary folder %s is still being removed after %g s", self.path, REMOVE_TIMEOUT_S)


def make_folder() -> tuple[Path, int | None]:
    """Make a folder for this process; also returns the descriptor that holds its lock, None where there are no such locks."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=tempfile.gettempdir()))
        try:
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):
            # Another process took it for an abandoned folder, and removes it or has removed it.
            continue
        except OSError:
            return path, None
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)


def _remove_own(owner: int, path: Path, lock: int | None) -> None:
    """Remove the folder of this process; a forked child, which inherits the finalizer, removes nothing."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(OSError):  # what can't be removed stays
        _remove_all(path)
    if lock is not None:
        os.close(lock)


def abandoned_folders() -> list[Path]:
    """List the folders of this user whose process has ended, sorted by name. This call blocks."""
    found: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with _locked(Path(entry.path)) as lock:
                    if lock is not None:
                        found.append(Path(entry.path))
    return sorted(found)


def owner_of(path: Path) -> str:
    """Return the id of the process that made a folder, for display."""
    return path.name.removeprefix(PREFIX).partition("-")[0]


def remove_abandoned(path: Path) -> bool:
    """Remove a folder whose process has ended, or raise; False if it does not exist or has another owner. This call blocks."""
    with _locked(path) as lock:
        if lock is None:
            return False
        _remove_all(path)
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """Lock a folder of this user and yield its descriptor; None if a process has locked it or another user owns it."""
    try:
        lock = _lock(path)
    except OSError:
        yield None
        return
    try:
        # Any user can create this name in a shared temporary folder, and the folder may have been removed since.
        found = os.fstat(lock)
        yield lock if found.st_uid == os.geteuid() and found.st_nlink else None
    finally:
        os.close(lock)


def _lock(path: Path) -> int:
    fd = os.open(path, _OPEN_FLAGS)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _remove_all(path: Path) -> None:
    """Remove a folder with its content, without following links."""
    for _ in _remove_content(path):
        pass
    os.rmdir(path)
