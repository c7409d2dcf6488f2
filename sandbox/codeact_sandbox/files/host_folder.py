"""A folder of the host, used through descriptors, so that no symbolic link below it is ever followed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from codeact_sandbox.files.private_folders import Identity, identity_of, is_in, private_folders
from codeact_sandbox.files.regular_files import open_regular
from codeact_sandbox.files.selection import Patterns, Selection
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import MAX_DEPTH, PART_PREFIX, printable

CHUNK_BYTES = 256 * 1024
IGNORE_FILE = ".gitignore"
MAX_IGNORE_BYTES = 64 * 1024
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
USE_MOUNT = "data= shows it in /data without copying it, and bind_dir= mounts a folder that can be written"
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


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

    def check_entry(self, old: os.stat_result | None) -> None:
        """Check the limits on entries for a file that may replace an old one."""
        if self.files >= self.max_files and not _is_file(old):
            reason = f"{self.files} files are there already. Remove some of them, or use another work_dir."
            raise file_error(errno.EDQUOT, "", reason)
        if old is None:
            self.check_folder()

    def check_folder(self) -> None:
        """Check the limit on entries of any kind."""
        if self.entries >= 2 * self.max_files:
            raise file_error(errno.EDQUOT, "", NO_MORE_ENTRIES)

    def check_size(self, old: os.stat_result | None, size: int, more: int) -> None:
        """Check the limits for a file of so many bytes, of which `more` are not counted; it may replace an old one."""
        if size > self.max_file_bytes:
            raise file_error(errno.EFBIG, "", f"it is larger than {self.max_file_bytes} bytes.")
        if self.bytes + more - self._counted_bytes(old) > self.max_total_bytes:
            most = self.max_total_bytes
            reason = f"all files together would exceed {most} bytes. Remove some of them, or use another work_dir."
            raise file_error(errno.EDQUOT, "", reason)

    def count(self, old: os.stat_result | None) -> None:
        """Count a file whose bytes are counted, in place of an old one if there was one."""
        self.bytes -= self._counted_bytes(old)
        self.entries += old is None
        self.files += not _is_file(old)

    def _counted_bytes(self, old: os.stat_result | None) -> int:
        return old.st_size if old is not None and _is_file(old) and old.st_size <= self.max_file_bytes else 0


class HostFolder:
    """A folder of the host, whose path must lead to the same folder as at the first use. One thread at a time may write to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._identity: Identity | None = None
        self._outside: frozenset[Identity] = frozenset()  # private folders that this one is not in

    def prepare(self) -> None:
        """Create the folder and check that it can be written."""
        task = f"The work_dir {self.root} can't be used"
        with explained(task):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except FileNotFoundError:
                raise file_error(errno.ENOENT, task, _NOT_CREATED) from None
        trial = PART_PREFIX + secrets.token_hex(8)
        with self.opened([], "write to") as folder, explained(f"The work_dir {self.root} can't be written"):
            try:
                os.close(os.open(trial, CREATE_FLAGS, 0o600, dir_fd=folder))
            except FileNotFoundError:
                raise file_error(errno.ENOENT, task, _TAKES_NO_FILES) from None
            os.unlink(trial, dir_fd=folder)

    @contextmanager
    def opened(
        self,
        parts: list[str],
        doing: str,
        *,
        quota: Quota | None = None,
        check: Callable[[int, str], None] | None = None,
    ) -> Iterator[int]:
        """Open a folder below this one step by step, and yield its descriptor.

        Missing folders are created, within the quota; None to create none. `check` is called before each step with the
        descriptor of a folder and the next part, and may raise.
        """
        descriptor = -1
        try:
            with explained(f"Can't {doing} {self.root}"):
                descriptor = self._open_root(doing)
                private = private_folders() if parts else frozenset()
                for part in parts:
                    if check is not None:
                        check(descriptor, part)
                    below = self._open_or_create(descriptor, part, quota)
                    os.close(descriptor)
                    descriptor = below
                    _refuse(descriptor, private)
            yield descriptor
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _open_root(self, doing: str) -> int:
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        identity = identity_of(descriptor)
        if self._identity is None:
            self._identity = identity
        if identity != self._identity:
            os.close(descriptor)
            raise file_error(errno.ESTALE, f"Can't {doing} {self.root}", _REPLACED)
        private = private_folders(around=True)
        if not private <= self._outside and is_in(descriptor, private):
            os.close(descriptor)
            raise file_error(errno.EPERM, f"Can't {doing} {self.root}", _IN_PRIVATE)
        self._outside = private
        return descriptor

    @staticmethod
    def _open_or_create(parent: int, part: str, quota: Quota | None) -> int:
        try:
            return os.open(part, FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            if quota is None:
                raise
        quota.check_folder()
        with suppress(FileExistsError):  # another process on the host created it first
            os.mkdir(part, 0o755, dir_fd=parent)
            quota.entries += 1
        return os.open(part, FOLDER_FLAGS, dir_fd=parent)

    def chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield at most `size` bytes of a regular file in chunks of at most 256 KiB."""
        *folders, leaf = name.split("/")
        task = f"Can't read `{printable(name)}` in {self.root}"
        with self.opened(folders, f"read `{printable(name)}` in") as folder, explained(task):
            file = open_regular(leaf, folder=folder)
        with file:
            while size > 0:
                with explained(task):
                    chunk = file.read(min(CHUNK_BYTES, size))
                if not chunk:
                    return
                size -= len(chunk)
                yield chunk


def _read_patterns(folder: int) -> Patterns:
    with suppress(OSError), open_regular(IGNORE_FILE, folder=folder) as file:
        return Patterns(file.read(MAX_IGNORE_BYTES).decode("utf-8", "replace").splitlines())
    return Patterns(())


def plain_mode(mode: int) -> int:
    """The mode of a transferred file: 0o755 if any user may execute it, else 0o644."""
    return 0o755 if mode & 0o111 else 0o644


@contextmanager
def explained(task: str) -> Iterator[None]:
    """Convert an `OSError` to a `SandboxFileError` that says what to do."""
    try:
        yield
    except SandboxFileError as error:
        if error.args == (error.reason,):
            raise file_error(error.errno, task, str(error.reason), type(error)) from None
        raise
    except OSError as error:
        raise file_error(error.errno, task, _advice(error)) from error


def _refuse(descriptor: int, private: frozenset[Identity]) -> None:
    if identity_of(descriptor) in private:
        raise file_error(errno.EPERM, "", _PRIVATE)


def file_error(
    number: int | None, task: str, reason: str, kind: type[SandboxFileError] = SandboxFileError
) -> SandboxFileError:
    error = kind(f"{task}: {reason}" if task else reason)
    # Not set through the arguments: OSError would print "[Errno 28]" before the sentence.
    error.errno = number
    error.reason = reason
    return error


NO_MORE_ENTRIES = (
    "there are too many files and folders in the work_dir already. Remove some of them, or use another work_dir."
)
_PRIVATE = (
    "that folder keeps the log of a run, a batch or this package's own files, which are no part of the workspace."
)
_IN_PRIVATE = "it is in a folder that keeps the log of a run or this package's own files. Use another work_dir."
_DISK_FULL = "the host's disk is full. Free some space, or use a work_dir on another disk."
_FORBIDDEN = "this user has no permission. Change the owner or mode, or use another work_dir."
_NOT_CREATED = "it does not exist and can't be created there. Use another folder."
_TAKES_NO_FILES = "no file can be created there. Use another folder."
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


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry of the host folder that is not sent."""

    name: str  # path relative to the workspace, safe to print; `.` for the folder as a whole
    reason: str  # the reason, as the rest of a sentence that begins with the name
    limit: bool = False  # whether the reason is a limit on the size or number of files


@dataclass
class Scan:
    """One scan of the folder: its regular files, its folders (with a slash at the end), and other entries."""

    max_files: int  # limit of files; the limit of entries of any kind is twice as high
    max_file_bytes: int  # larger files do not count in `bytes`: they can only be the user's
    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: dict[str, os.stat_result] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    entries: int = 0
    bytes: int = 0
    complete: bool = True
    readable: bool = True
    selection: Selection | None = None  # None if nothing is left out
    left_out: list[str] = field(default_factory=list)  # folders have a slash at the end
    private: frozenset[Identity] = field(default_factory=private_folders)

    def folder(self, descriptor: int, prefix: str, depth: int, ignored: tuple[tuple[int, Patterns], ...] = ()) -> None:
        """Scan an open folder and those below it."""
        # Any number of entries must cost only bounded time and memory.
        room = 2 * self.max_files - self.entries
        # Before it is listed, so that the next scan sees what is added meanwhile.
        self.folders[prefix] = os.fstat(descriptor)
        with os.scandir(descriptor) as listing:
            entries = list(islice(listing, max(room, 0) + 1))
        if self.selection is not None and any(entry.name == IGNORE_FILE for entry in entries):
            ignored = (*ignored, (depth - 1, _read_patterns(descriptor)))
        for entry in entries:
            name = prefix + entry.name
            if self._leaves_out(entry, name, ignored):
                continue
            self.entries += 1
            if self.complete and self.entries > 2 * self.max_files:
                self._stop()
            if not self.complete:
                return
            self._entry(entry, descriptor, name, depth, ignored)

    def _leaves_out(self, entry: os.DirEntry[str], name: str, ignored: tuple[tuple[int, Patterns], ...]) -> bool:
        is_folder = entry.is_dir(follow_symlinks=False)
        if self.selection is None or not self.selection.leaves_out(name, ignored, is_folder=is_folder):
            return False
        self.left_out.append(printable(name) + "/" * is_folder)
        return True

    def empty_folders(self) -> set[str]:
        """Return the folders in which nothing was found, whose names end with a slash."""
        parents = {name.removesuffix("/").rpartition("/")[0] + "/" for name in (*self.files, *self.folders)}
        return self.folders.keys() - parents - {""}

    def _stop(self) -> None:
        self.complete = False
        text = f"holds more than {self.max_files} files, or {2 * self.max_files} files and folders; the rest is not sent, and"
        self.skip(".", f"{text} nothing is stored in it. {USE_MOUNT}.", limit=True)

    def _entry(
        self,
        entry: os.DirEntry[str],
        parent: int,
        name: str,
        depth: int,
        ignored: tuple[tuple[int, Patterns], ...],
    ) -> None:
        if entry.is_symlink():
            self.skip(name, "is a symbolic link.")
        elif entry.is_file(follow_symlinks=False):
            self._file(entry, name)
        elif not entry.is_dir(follow_symlinks=False):
            self.skip(name, "is not a regular file.")
        elif depth >= MAX_DEPTH:
            self.skip(name, f"is more than {MAX_DEPTH} folders deep.")
        else:
            self._descend(parent, name, depth, ignored)

    def _file(self, entry: os.DirEntry[str], name: str) -> None:
        is_part = entry.name.startswith(PART_PREFIX)
        if len(self.files) == self.max_files and not is_part:
            self._stop()
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        # Half-written files of a killed process take space, too.
        self.bytes += status.st_size if status.st_size <= self.max_file_bytes else 0
        if not is_part:
            self.files[name] = status

    def _descend(self, parent: int, name: str, depth: int, ignored: tuple[tuple[int, Patterns], ...]) -> None:
        try:
            descriptor = os.open(name.rpartition("/")[2], FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            self.readable = False
            self.skip(name, f"can't be opened as a folder: {os.strerror(error.errno or 0)}.")
            return
        try:
            if identity_of(descriptor) not in self.private:
                self.folder(descriptor, name + "/", depth + 1, ignored)
        finally:
            os.close(descriptor)

    def skip(self, name: str, reason: str, *, limit: bool = False) -> None:
        """Record that an entry is not sent."""
        self.skipped.append(Skipped(printable(name), reason, limit))


def _is_file(status: os.stat_result | None) -> bool:
    return status is not None and stat.S_ISREG(status.st_mode)
