"""Writing a file of the sandbox into the host folder: whole or not at all, and within the folder's limits."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from stat import S_ISREG
from threading import RLock

from codeact_sandbox.files.host_folder import (
    CREATE_FLAGS,
    NO_MORE_ENTRIES,
    HostFolder,
    explained,
    file_error,
    plain_mode,
)
from codeact_sandbox.types.filenames import PART_PREFIX, printable
from codeact_sandbox.types.protected_names import GIT, ProtectedNameError, ProtectedNames, not_written_back

HOLE_BYTES = 4096
MAX_HASHED_BYTES = 64 * 1024**2  # larger files have no digest


@dataclass(slots=True)
class Quota:
    """The limits of the host folder, and its content as counted for them: never too little, unless others write to it."""

    max_files: int  # limit of regular files; the limit of entries of any kind is twice as high
    max_file_bytes: int  # limit of one file; larger files are not counted in `bytes`: they can only be the user's
    max_total_bytes: int  # limit of all files in bytes
    entries: int = 0
    files: int = 0
    bytes: int = 0  # their size
    room: int | None = None  # bytes that may still be written to the disk; None for no limit
    complete: bool = True  # whether all entries were counted; if not, the limits are exceeded

    def check_entry(self, old: os.stat_result | None, new_folders: int = 0) -> None:
        """Check the limits on entries for a file that may replace an old one."""
        if self.files >= self.max_files and not _is_file(old):
            reason = f"{self.files} files are there already. Remove some of them, or use another work_dir."
            raise file_error(errno.EDQUOT, "", reason)
        if self.entries + new_folders >= 2 * self.max_files and old is None:
            raise file_error(errno.EDQUOT, "", NO_MORE_ENTRIES)

    def check_size(self, old: os.stat_result | None, size: int) -> None:
        """Check the limits on bytes for a file that may replace an old one."""
        if size > self.max_file_bytes:
            raise file_error(errno.EFBIG, "", f"it is larger than {self.max_file_bytes} bytes.")
        if self.bytes + size - self._counted_bytes(old) > self.max_total_bytes:
            most = self.max_total_bytes
            reason = f"all files together would exceed {most} bytes. Remove some of them, or use another work_dir."
            raise file_error(errno.EDQUOT, "", reason)

    def count(self, old: os.stat_result | None, size: int) -> None:
        """Count a file that was stored, in place of an old one if there was one."""
        self.bytes += size - self._counted_bytes(old)
        self.entries += old is None
        self.files += not _is_file(old)

    def _counted_bytes(self, old: os.stat_result | None) -> int:
        return old.st_size if old is not None and _is_file(old) and old.st_size <= self.max_file_bytes else 0


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
        self._made: list[str] = []
        self._part = PART_PREFIX + secrets.token_hex(8)
        *folders, self._leaf = name.split("/")
        check = partial(refuse_repository, protected)

        with explained(self._task):
            if not quota.complete:
                raise file_error(errno.EDQUOT, "", NO_MORE_ENTRIES)
            room = 2 * quota.max_files - quota.entries - 1
            doing = f"store `{printable(name)}` in"
            with folder.opened(folders, doing, made=self._made, room=room, check=check) as parent:
                check(parent, self._leaf)
                old = _status(self._leaf, parent)
                quota.check_entry(old, len(self._made))
                quota.check_size(old, size)
                self._parent = os.dup(parent)
                try:
                    self._descriptor = os.open(self._part, CREATE_FLAGS, 0o600, dir_fd=parent)
                except BaseException:
                    os.close(self._parent)
                    raise
        self._old = old
        self._open = True
        quota.entries += len(self._made)

    def write(self, *chunks: bytes) -> None:
        """Append bytes."""
        with self._lock, explained(self._task):
            for chunk in chunks:
                self._quota.check_size(self._old, self._written + len(chunk))
                self._put(chunk)
                self._written += len(chunk)
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
            self._quota.check_size(old, self._written)
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
            self._quota.count(old, self._written)
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
            self._quota.entries -= len(self._made)
            self._folder.remove_folders(self._made)


def refuse_repository(protected: ProtectedNames, descriptor: int, part: str) -> None:
    """Raise an error if a part would make an open folder a git repository."""
    if protected.makes_repository(descriptor, part):
        reason = f"its folder would be a git repository, and {not_written_back(GIT)}"
        raise file_error(errno.EPERM, "", reason, ProtectedNameError)


def _is_file(status: os.stat_result | None) -> bool:
    return status is not None and S_ISREG(status.st_mode)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
