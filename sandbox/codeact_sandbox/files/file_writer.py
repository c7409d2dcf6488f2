"""Writing a file of the sandbox into the host folder: whole or not at all, and within the folder's limits."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from threading import RLock

from codeact_sandbox.files.host_folder import (
    CREATE_FLAGS,
    NO_MORE_ENTRIES,
    HostFolder,
    Quota,
    explained,
    file_error,
    plain_mode,
)
from codeact_sandbox.types.filenames import PART_PREFIX, printable
from codeact_sandbox.types.protected_names import GIT, ProtectedNameError, ProtectedNames, not_written_back

HOLE_BYTES = 4096
MAX_HASHED_BYTES = 64 * 1024**2  # larger files have no digest


class FileWriter:
    """A file that is being written under a temporary name; `commit` renames it, `abandon` removes it.

    A symbolic link at its path is replaced, and the link's target is unchanged. A link instead of a folder in its path
    is refused. Safe to use from any thread.
    """

    def __init__(
        self,
        folder: HostFolder,
        name: str,
        mode: int,
        size: int,
        *,
        quota: Quota,
        protected: ProtectedNames,
        lock: RLock,
    ) -> None:
        self.name = name
        self._mode = mode
        self._folder = folder
        self._quota = quota
        self._lock = lock
        self._task = f"Can't store `{printable(name)}` in {folder.root}"
        self._digest = blake2b(digest_size=16)
        self._written = 0
        self._part = PART_PREFIX + secrets.token_hex(8)
        *folders, self._leaf = name.split("/")
        check = partial(refuse_repository, protected)

        with explained(self._task):
            if not quota.complete:
                raise file_error(errno.EDQUOT, "", NO_MORE_ENTRIES)
            doing = f"store `{printable(name)}` in"
            with folder.opened(folders, doing, quota=quota, check=check) as parent:
                check(parent, self._leaf)
                old = _status(self._leaf, parent)
                quota.check_entry(old)
                quota.check_size(old, size, size)
                self._parent = os.dup(parent)
                try:
                    self._descriptor = os.open(self._part, CREATE_FLAGS, 0o600, dir_fd=parent)
                except BaseException:
                    os.close(self._parent)
                    raise
        self._old = old
        self._open = True

    def write(self, *chunks: bytes) -> None:
        """Append bytes."""
        with self._lock, explained(self._task):
            for chunk in chunks:
                self._quota.check_size(self._old, self._written + len(chunk), len(chunk))
                self._put(chunk)
                self._written += len(chunk)
                self._quota.bytes += len(chunk)
                if self._written <= MAX_HASHED_BYTES:
                    self._digest.update(chunk)

    def _put(self, chunk: bytes) -> None:
        if len(chunk) >= HOLE_BYTES and chunk.count(0) == len(chunk):
            os.lseek(self._descriptor, len(chunk), os.SEEK_CUR)
            return
        if self._quota.room is not None:
            self._quota.room -= len(chunk)
            if self._quota.room < 0:
                raise file_error(errno.EDQUOT, "", "it would take more than half of the free space of the disk.")
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def commit(self) -> tuple[os.stat_result | None, bytes | None]:
        """Rename it; returns its status (None if it has been replaced already) and the digest of its content."""
        with self._lock, explained(self._task):
            old = self._old = _status(self._leaf, self._parent)
            self._quota.check_entry(old)
            self._quota.check_size(old, self._written, 0)
            os.ftruncate(self._descriptor, self._written)  # its end may be a hole
            os.fchmod(self._descriptor, plain_mode(self._mode))
            inode = os.fstat(self._descriptor).st_ino
            # Network file systems report a full disk only here.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            os.replace(self._part, self._leaf, src_dir_fd=self._parent, dst_dir_fd=self._parent)
            self._open = False
            status = _status(self._leaf, self._parent)
            os.close(self._parent)
            self._quota.count(old)
        digest = self._digest.digest() if self._written <= MAX_HASHED_BYTES else None
        return (status if status is not None and status.st_ino == inode else None), digest

    def abandon(self) -> None:
        """Remove it, unless it was committed; repeated calls are harmless."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            with suppress(OSError):
                os.unlink(self._part, dir_fd=self._parent)
            if self._descriptor >= 0:
                os.close(self._descriptor)
            os.close(self._parent)
            self._quota.bytes -= self._written


def refuse_repository(protected: ProtectedNames, descriptor: int, part: str) -> None:
    """Raise an error if a part would make an open folder a git repository."""
    if protected.makes_repository(descriptor, part):
        reason = f"its folder would be a git repository, and {not_written_back(GIT)}"
        raise file_error(errno.EPERM, "", reason, ProtectedNameError)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
