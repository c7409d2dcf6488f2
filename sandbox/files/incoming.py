"""A file that is being stored in the host folder, within its limits."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.files.host_folder import NO_MORE_ENTRIES, PartFile, file_error
from autogen_codeact.sandbox.files.protected import GIT, ProtectedNameError, left_out

if TYPE_CHECKING:
    from autogen_codeact.sandbox.files.workspace import Workspace

DIGEST_MAX_BYTES = 1024**2


@dataclass(slots=True)
class Usage:
    """The content of the host folder as counted for its limits: never less than the truth, unless others write to it.

    Args:
        entries: Entries of any kind.
        files: Regular files.
        bytes: Their size, without those that are larger than a file may be.
        complete: Whether all entries were counted; if not, the limits are exceeded.
    """

    entries: int
    files: int
    bytes: int
    complete: bool


class Incoming:
    """A file that is being stored; `commit` renames it, `abandon` removes it.

    Args:
        workspace: Where it goes.
        name: Its checked path relative to the workspace.
        mode: Permission bits in the sandbox.
        size: Its minimum size in bytes.
        task: The beginning of error messages, such as what could not be done.

    Raises:
        SandboxFileError: It can't be created, or a limit is exceeded.
    """

    def __init__(self, workspace: Workspace, name: str, mode: int, size: int, task: str) -> None:
        self._workspace = workspace
        self._name = name
        self._mode = mode
        self._task = task
        self._digest = blake2b(digest_size=16)
        self._made: list[str] = []
        usage = workspace.usage
        if not usage.complete:
            raise file_error(errno.EDQUOT, task, NO_MORE_ENTRIES)
        parts = name.split("/")
        room = 2 * workspace.max_files - usage.entries - 1

        def check(folder: int, depth: int) -> None:
            if workspace.write_back.makes_repository(folder, parts[depth]):
                reason = f"its folder would be a git repository, and {left_out(GIT)}"
                raise file_error(errno.EPERM, task, reason, ProtectedNameError)

        doing = f"store `{printable(name)}` in"
        with workspace.folder.opened(parts[:-1], doing, made=self._made, room=room, check=check) as folder:
            self._part = PartFile(folder, parts[-1], task)
            self._old = self._part.replaced()
            try:
                self._check_room(len(self._made))
                self._check_size(size)
            except BaseException:
                self._part.abandon()
                raise
        usage.entries += len(self._made)

    def _check_room(self, more: int = 0) -> None:
        """Check the limits on entries, if this file adds one."""
        old, usage, most = self._old, self._workspace.usage, self._workspace.max_files
        if usage.files >= most and (old is None or not S_ISREG(old.st_mode)):
            reason = f"{usage.files} files are there already. Remove some of them, or use another work_dir."
            raise file_error(errno.EDQUOT, self._task, reason)
        if usage.entries + more >= 2 * most and old is None:
            raise file_error(errno.EDQUOT, self._task, NO_MORE_ENTRIES)

    def _check_size(self, size: int) -> None:
        workspace = self._workspace
        if size > workspace.max_file_bytes:
            raise file_error(errno.EFBIG, self._task, f"it is larger than {workspace.max_file_bytes} bytes.")
        if workspace.usage.bytes + size - self._counted_bytes() > workspace.max_total_bytes:
            most = workspace.max_total_bytes
            reason = f"all files together would exceed {most} bytes. Remove some of them, or use another work_dir."
            raise file_error(errno.EDQUOT, self._task, reason)

    def _counted_bytes(self) -> int:
        """The counted size of the file at its path."""
        old = self._old
        is_counted = old is not None and S_ISREG(old.st_mode) and old.st_size <= self._workspace.max_file_bytes
        return old.st_size if old is not None and is_counted else 0

    def write(self, *chunks: bytes) -> None:
        """Append bytes.

        Raises:
            SandboxFileError: A limit is exceeded or the host can't write; `abandon` it.
            SandboxDied: The workspace is closed.
        """
        with self._workspace.used():
            for chunk in chunks:
                self._check_size(self._part.written + len(chunk))
                self._part.write(chunk)
                if self._part.written <= DIGEST_MAX_BYTES:
                    self._digest.update(chunk)

    def commit(self) -> Path:
        """Rename it to its name.

        Returns:
            The file on the host.

        Raises:
            SandboxFileError: A limit is exceeded or the host can't; `abandon` it.
            SandboxDied: The workspace is closed.
        """
        workspace, written = self._workspace, self._part.written
        with workspace.used():
            old = self._old = self._part.replaced()
            self._check_room()
            self._check_size(written)
            counted = self._counted_bytes()
            status = self._part.commit(self._mode)
            self._made.clear()
            usage = workspace.usage
            usage.bytes += written - counted
            usage.entries += old is None
            usage.files += old is None or not S_ISREG(old.st_mode)
            digest = self._digest.digest() if written <= DIGEST_MAX_BYTES else None
            workspace.stored(self, self._name, status, digest)
        return workspace.root / self._name

    def abandon(self) -> None:
        """Remove it; harmless after `commit`."""
        with self._workspace.lock:
            self._workspace.incoming.discard(self)
            self._part.abandon()
            self._workspace.usage.entries -= len(self._made)
            self._workspace.folder.remove_folders(self._made)
