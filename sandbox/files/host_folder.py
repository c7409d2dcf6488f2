"""A folder of the host, used through descriptors, so that no symbolic link below it is ever followed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autogen_codeact.sandbox.errors import SandboxFileError
from autogen_codeact.sandbox.files.filenames import PART_PREFIX, printable
from autogen_codeact.sandbox.files.scan import FOLDER_FLAGS

CHUNK_BYTES = 256 * 1024
# Without O_NONBLOCK, opening a FIFO that took a file's place would wait for a writer.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class HostFolder:
    """A folder of the host. Only one thread at a time may use it.

    Args:
        root: The folder. Its path may contain symbolic links, but must lead to the same folder as at the first use.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._identity: tuple[int, int] | None = None

    def prepare(self) -> None:
        """Create the folder and check that it can be written.

        Raises:
            SandboxFileError: It can't be created or written; the message says what to do.
        """
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise file_error(errno.ENOTSUP, "", "A work_dir needs Linux or macOS; on Windows, run this inside WSL 2.")
        task = f"The work_dir {self.root} can't be used"
        with explained(task):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except FileNotFoundError:
                raise file_error(errno.ENOENT, task, _NO_PLACE) from None
        trial = PART_PREFIX + secrets.token_hex(8)
        with self.opened([], "write to") as folder, explained(f"The work_dir {self.root} can't be written"):
            os.close(os.open(trial, _CREATE_FLAGS, 0o600, dir_fd=folder))
            os.unlink(trial, dir_fd=folder)

    @contextmanager
    def opened(
        self,
        parts: list[str],
        doing: str,
        *,
        made: list[str] | None = None,
        room: int = 0,
        check: Callable[[int, int], None] | None = None,
    ) -> Iterator[int]:
        """Open a folder below this one step by step.

        Args:
            parts: Its path.
            doing: The purpose, for error messages.
            made: The paths of created folders are appended to it; None to create none.
            room: Number of folders that may be created.
            check: Called with the descriptor and the depth of each folder that existed; may raise.

        Returns:
            Its descriptor, open inside the `with` block.

        Raises:
            SandboxFileError: It can't be opened or created; created folders have been removed.
        """
        descriptor, is_new = -1, False
        try:
            with explained(f"Can't {doing} {self.root}"):
                descriptor = self._open_root(doing)
                for depth, part in enumerate(parts):
                    if check is not None and not is_new:
                        check(descriptor, depth)
                    below, is_new = self._step(descriptor, part, made is not None, room - len(made or ()))
                    if is_new and made is not None:
                        made.append("/".join(parts[: depth + 1]))
                    os.close(descriptor)
                    descriptor = below
                if check is not None and not is_new:
                    check(descriptor, len(parts))
            yield descriptor
        except BaseException:
            self.remove_folders(made or [])
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _open_root(self, doing: str) -> int:
        descriptor = os.open(self.root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        status = os.fstat(descriptor)
        identity = status.st_dev, status.st_ino
        if self._identity is None:
            self._identity = identity
        if identity != self._identity:
            os.close(descriptor)
            raise file_error(errno.ESTALE, f"Can't {doing} {self.root}", _REPLACED)
        return descriptor

    @staticmethod
    def _step(parent: int, part: str, make: bool, room: int) -> tuple[int, bool]:
        try:
            return os.open(part, FOLDER_FLAGS, dir_fd=parent), False
        except FileNotFoundError:
            if not make:
                raise
        if room <= 0:
            raise file_error(errno.EDQUOT, "", NO_MORE_ENTRIES)
        try:
            os.mkdir(part, 0o755, dir_fd=parent)
        except FileExistsError:  # another process on the host created it first
            return os.open(part, FOLDER_FLAGS, dir_fd=parent), False
        return os.open(part, FOLDER_FLAGS, dir_fd=parent), True

    def remove_folders(self, made: list[str]) -> None:
        """Remove created folders that are not needed and still empty.

        Args:
            made: Their paths, parents first; it is empty afterwards.
        """
        while made:
            *above, name = made.pop().split("/")
            with suppress(OSError), self.opened(above, "write to") as folder:
                os.rmdir(name, dir_fd=folder)

    def chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Read a regular file.

        Args:
            name: Its path.
            size: Bytes to read at most.

        Returns:
            Its content in chunks of at most 256 KiB.

        Raises:
            SandboxFileError: It does not exist, can't be read, is not a regular file, or its path contains links.
        """
        *folders, leaf = name.split("/")
        task = f"Can't read `{printable(name)}` in {self.root}"
        with self.opened(folders, f"read `{printable(name)}` in") as folder, explained(task):
            descriptor = os.open(leaf, _READ_FLAGS, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise file_error(errno.EINVAL, task, "it is not a regular file.")
            while size > 0:
                with explained(task):
                    chunk = os.read(descriptor, min(CHUNK_BYTES, size))
                if not chunk:
                    return
                size -= len(chunk)
                yield chunk
        finally:
            os.close(descriptor)


class PartFile:
    """A file that is being written under a temporary name; `commit` renames it, `abandon` removes it.

    A symbolic link at its path is replaced, and the link's target is unchanged.

    Args:
        folder: Descriptor of its folder; the object duplicates it.
        leaf: Its name there.
        task: The beginning of error messages, such as what could not be done.

    Raises:
        SandboxFileError: It can't be created.
    """

    def __init__(self, folder: int, leaf: str, task: str) -> None:
        self.written = 0
        """Bytes written so far."""
        self._leaf = leaf
        self._part = PART_PREFIX + secrets.token_hex(8)
        self._task = task
        with explained(task):
            self._folder = os.dup(folder)
            try:
                self._descriptor = os.open(self._part, _CREATE_FLAGS, 0o600, dir_fd=folder)
            except BaseException:
                os.close(self._folder)
                raise
        self._open = True

    def replaced(self) -> os.stat_result | None:
        """The status of the entry at its path; None if there is none."""
        try:
            return os.stat(self._leaf, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return None

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            SandboxFileError: The host can't write; `abandon` it.
        """
        with explained(self._task):
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        self.written += len(data)

    def commit(self, mode: int) -> os.stat_result | None:
        """Rename it to its name.

        Args:
            mode: Permission bits in the sandbox; only whether anybody may execute it is kept.

        Returns:
            Its status, or None if another process on the host has replaced it already.

        Raises:
            SandboxFileError: The host can't; `abandon` it.
        """
        with explained(self._task):
            os.fchmod(self._descriptor, plain_mode(mode))
            inode = os.fstat(self._descriptor).st_ino
            # Network file systems report a full disk only here.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            os.replace(self._part, self._leaf, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        status = self.replaced()
        self._open = False
        os.close(self._folder)
        return status if status is not None and status.st_ino == inode else None

    def abandon(self) -> None:
        """Remove it, unless it was committed; repeated calls are harmless."""
        if not self._open:
            return
        self._open = False
        with suppress(OSError):
            os.unlink(self._part, dir_fd=self._folder)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        os.close(self._folder)


def plain_mode(mode: int) -> int:
    """The mode of a transferred file: 0o755 if anybody may execute it, else 0o644."""
    return 0o755 if mode & 0o111 else 0o644


@contextmanager
def explained(task: str) -> Iterator[None]:
    """Convert an `OSError` to a `SandboxFileError` that says what to do.

    Args:
        task: What can't be done.
    """
    try:
        yield
    except SandboxFileError as error:
        if error.args == (error.reason,):
            raise file_error(error.errno, task, str(error.reason)) from None
        raise
    except OSError as error:
        raise file_error(error.errno, task, _advice(error)) from error


def file_error(
    number: int | None, task: str, reason: str, kind: type[SandboxFileError] = SandboxFileError
) -> SandboxFileError:
    """Make an error.

    Args:
        number: Its `errno`.
        task: What can't be done, with paths of the host; may be empty.
        reason: Why, without paths of the host.
        kind: Its class.
    """
    error = kind(f"{task}: {reason}" if task else reason)
    # Not set through the arguments: OSError would print "[Errno 28]" before the sentence.
    error.errno = number
    error.reason = reason
    return error


NO_MORE_ENTRIES = (
    "there are too many files and folders in the work_dir already. Remove some of them, or use another work_dir."
)
_DISK_FULL = "the host's disk is full. Free some space, or use a work_dir on another disk."
_FORBIDDEN = "this user has no permission. Change the owner or mode, or use another work_dir."
_NO_PLACE = "it does not exist and can't be created there. Use another folder."
_NO_FOLDER = "a symbolic link or a file is where a folder should be. Use another name, or remove it."
_REPLACED = (
    "the work_dir was replaced by another folder or a symbolic link after the start. Restart the executor to use it."
)
_ADVICE = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: "the file system is read-only. Use a work_dir on another one.",
    errno.ELOOP: _NO_FOLDER,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "there is a folder of that name on the host. Use another name, or remove it.",
    errno.ENOENT: "it no longer exists on the host. Create it again, or start again.",
}


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, f"{error.strerror or error}.")
