"""Scanning the host folder that is synchronised with the sandbox's `/workspace`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import islice

from autogen_codeact.sandbox.files.filenames import MAX_DEPTH, PART_PREFIX, printable

# Windows lacks both; Workspace.prepare refuses there before either is used.
FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
USE_MOUNT = "data= shows it in /data without copying it, and bind_dir= mounts a folder that can be written."
Signature = tuple[int, int, int, int]


def signature_of(status: os.stat_result) -> Signature:
    """Return what changes with a file or folder, as far as its file system reports it."""
    # The change time also sees a new mode, and tools that set the modification time back.
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry of the host folder that is not sent.

    Args:
        name: Path relative to the workspace, safe to print; `.` for the folder as a whole.
        reason: The reason, as the rest of a sentence that begins with the name.
        limit: Whether the reason is a limit on the size or number of files.
    """

    name: str
    reason: str
    limit: bool = False


class TooManyEntriesError(Exception):
    """The folder has more content than the caller allows."""


@dataclass
class Scan:
    """One scan of the folder: its regular files, its folders (with a slash at the end), and other entries.

    Args:
        max_files: Limit of files; the limit of entries of any kind is twice as high.
        max_file_bytes: Larger files do not count in `bytes`: they can only be the user's.
        most_entries: Number of entries above which it raises `TooManyEntriesError`, or None.
    """

    max_files: int
    max_file_bytes: int
    most_entries: int | None = None
    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: dict[str, os.stat_result] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    entries: int = 0
    bytes: int = 0
    complete: bool = True
    readable: bool = True

    def folder(self, descriptor: int, prefix: str, depth: int) -> None:
        """Scan an open folder and those below it.

        Args:
            descriptor: The folder.
            prefix: Its path with a slash at the end; empty for the top.
            depth: Number of folders up to and including it.
        """
        # Any number of entries must cost only bounded time and memory.
        room = 2 * self.max_files - self.entries
        # Before it is listed, so that the next scan sees what is added meanwhile.
        self.folders[prefix] = os.fstat(descriptor)
        with os.scandir(descriptor) as listing:
            entries = list(islice(listing, max(room, 0) + 1))
        for entry in entries:
            self.entries += 1
            if self.most_entries is not None and self.entries > self.most_entries:
                raise TooManyEntriesError
            if self.complete and self.entries > 2 * self.max_files:
                self._stop()
            if not self.complete:
                return
            self._entry(entry, descriptor, prefix + entry.name, depth)

    def _stop(self) -> None:
        self.complete = False
        text = f"holds more than {self.max_files} files, or {2 * self.max_files} files and folders; the rest is not sent, and"
        self.skip(".", f"{text} nothing is stored in it. {USE_MOUNT}", limit=True)

    def _entry(self, entry: os.DirEntry[str], parent: int, name: str, depth: int) -> None:
        if entry.is_symlink():
            self.skip(name, "is a symbolic link.")
        elif entry.is_file(follow_symlinks=False):
            self._file(entry, name)
        elif not entry.is_dir(follow_symlinks=False):
            self.skip(name, "is not a regular file.")
        elif depth >= MAX_DEPTH:
            self.skip(name, f"is more than {MAX_DEPTH} folders deep.")
        else:
            self._descend(entry.name, parent, name, depth)

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

    def _descend(self, part: str, parent: int, name: str, depth: int) -> None:
        try:
            descriptor = os.open(part, FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            self.readable = False
            self.skip(name, f"can't be opened as a folder: {os.strerror(error.errno or 0)}.")
            return
        try:
            self.folder(descriptor, name + "/", depth + 1)
        finally:
            os.close(descriptor)

    def skip(self, name: str, reason: str, *, limit: bool = False) -> None:
        """Record that an entry is not sent."""
        self.skipped.append(Skipped(printable(name), reason, limit))
