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
# Without O_NONBLOCK, opening a FIFO that has replaced a file would wait for a writer.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


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
                raise file_error(errno.ENOENT, task, _NOT_CREATED) from None
        trial = PART_PREFIX + secrets.token_hex(8)
        with self.opened([], "write to") as folder, explained(f"The work_dir {self.root} can't be written"):
            os.close(os.open(trial, CREATE_FLAGS, 0o600, dir_fd=folder))
            os.unlink(trial, dir_fd=folder)

    @contextmanager
    def opened(
        self,
        parts: list[str],
        doing: str,
        *,
        made: list[str] | None = None,
        room: int = 0,
        check: Callable[[int, str], None] | None = None,
    ) -> Iterator[int]:
        """Open a folder below this one step by step.

        Args:
            parts: Its path.
            doing: The purpose, for error messages.
            made: The paths of created folders are appended to it; None to create none.
            room: Number of folders that may be created.
            check: Called before each step with the descriptor of a folder and the next part; may raise.

        Returns:
            Its descriptor, open inside the `with` block.

        Raises:
            SandboxFileError: It can't be opened or created; created folders have been removed.
        """
        descriptor = -1
        try:
            with explained(f"Can't {doing} {self.root}"):
                descriptor = self._open_root(doing)
                for depth, part in enumerate(parts, start=1):
                    if check is not None:
                        check(descriptor, part)
                    below = self._open_or_create(descriptor, "/".join(parts[:depth]), made, room)
                    os.close(descriptor)
                    descriptor = below
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
    def _open_or_create(parent: int, path: str, made: list[str] | None, room: int) -> int:
        part = path.rpartition("/")[2]
        try:
            return os.open(part, FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            if made is None:
                raise
        if len(made) >= room:
            raise file_error(errno.EDQUOT, "", NO_MORE_ENTRIES)
        with suppress(FileExistsError):  # another process on the host created it first
            os.mkdir(part, 0o755, dir_fd=parent)
            made.append(path)
        return os.open(part, FOLDER_FLAGS, dir_fd=parent)

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
            raise file_error(error.errno, task, str(error.reason), type(error)) from None
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
_NOT_CREATED = "it does not exist and can't be created there. Use another folder."
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
