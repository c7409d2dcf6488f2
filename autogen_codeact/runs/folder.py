"""A run's folder, read without trust: no link in it is followed, only regular files are opened, and memory is bounded."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from autogen_core.code_executor import CodeResult

from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.chain import Chain
from autogen_codeact.runs.errors import RunFileError, RunFolderError
from autogen_codeact.runs.results import ResultRecord, StoredFile
from autogen_codeact.runs.store import EVENTS
from codeact_sandbox.files.private_folders import Identity
from codeact_sandbox.files.regular_files import open_regular

MAX_EVENT = 24 * 1024 * 1024
"""Bytes of memory that the large values of one event, or the files of one result, may take."""
MAX_HELD = 64 * 1024 * 1024  # bytes of memory that everything may take that is needed to continue a run
_PIECE = 64 * 1024
_PARTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^"]{1,65536}', re.DOTALL)
"""A string of JSON, or what is between two of them, in pieces."""
_WIDE = re.compile(rb"[\xf0-\xff]|\\u[dD]8")
# Measured with CPython 3.11 to 3.13, rounded up.
_COSTS = {b"{": 240, b"[": 96, b",": 48, b":": 110}
_STRING = 58
FILES = "files"
MAX_FILE = 64 * 1024 * 1024  # bytes of one stored file; a larger one is left out
MAX_ALL = 1024 * 1024 * 1024  # bytes of all stored files of a run
TOO_LARGE = "a run's folder keeps files of up to {limit:,} bytes"
TOO_MANY = "the files of a run's folder may have {limit:,} bytes together"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class MemoryLimit:
    """Memory that values may still take."""

    left: int = MAX_EVENT

    def take(self, cost: int, what: str) -> None:
        """Use some of it for something."""
        if cost > self.left:
            raise RunFileError(f"{what} would take too much memory: {self.left:,} bytes are left for it")
        self.left -= cost


def json_cost(data: bytes, limit: int) -> int:
    """Return the bytes that a JSON text takes as objects, at most. It ends above `limit`."""
    cost = 0
    for part in _PARTS.finditer(data):
        text = part[0]
        cost += _width(text) * len(text)
        if text.startswith(b'"'):
            cost += _STRING
        else:
            cost += sum(text.count(sign) * each for sign, each in _COSTS.items())
        if cost > limit:
            break
    return cost


def _width(data: bytes) -> int:
    """Return the bytes of the widest character of a text, at most, in memory; its characters may be escapes of JSON."""
    if data.isascii() and b"\\u" not in data:  # much faster than the search
        return 1
    return 4 if _WIDE.search(data) else 2


class FileStore:
    """Stores contents in a run's folder. Its methods read and write files: call them in a thread."""

    def __init__(
        self, folder: Path, clean: Callable[[bytes], bytes], max_file: int = MAX_FILE, max_all: int = MAX_ALL
    ) -> None:
        self._folder = folder / FILES
        self._clean = clean
        self._max_file, self._max_all = max_file, max_all
        self._bytes: int | None = None
        self.identity: Identity | None = None
        """The run's folder, if it is known: nothing is written into another one that has taken its place."""

    def put(
        self, data: bytes, content: Literal["bytes", "text", "json"] = "bytes", *, clean: bool = True
    ) -> StoredFile:
        """Store a content; it is on disk when this returns."""
        if len(data) > self._max_file:
            return StoredFile(sha256=None, size=len(data), format=content, note=TOO_LARGE.format(limit=self._max_file))
        data = self._clean(data) if clean else data
        name = hashlib.sha256(data).hexdigest()
        path = self._folder / name
        if not path.exists():
            if self._bytes is None:
                self._bytes = (
                    sum(each.stat().st_size for each in self._folder.iterdir()) if self._folder.is_dir() else 0
                )
            # States and large values are needed to continue the run.
            if content == "bytes" and self._bytes + len(data) > self._max_all:
                note = TOO_MANY.format(limit=self._max_all)
                return StoredFile(sha256=None, size=len(data), format=content, note=note)
            self._write(path, data)
            self._bytes += len(data)
        return StoredFile(sha256=name, size=len(data), format=content)

    def put_file(self, path: Path) -> StoredFile | None:
        """Store the content of a regular file of the host; None if there is no such file."""
        try:
            with open_regular(path) as file:
                if (size := os.fstat(file.fileno()).st_size) > self._max_file:
                    return StoredFile(sha256=None, size=size, note=TOO_LARGE.format(limit=self._max_file))
                data = file.read(self._max_file + 1)
        except OSError:
            return None
        return self.put(data)

    def _write(self, path: Path, data: bytes) -> None:
        if self.identity is not None:
            status = os.stat(self._folder.parent)
            if (status.st_dev, status.st_ino) != self.identity:
                raise OSError(errno.ESTALE, "it was replaced by another folder", str(self._folder.parent))
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link", str(self._folder))
        with atomic_binary_file(path, private=True) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def result_record(result: CodeResult, files: FileStore) -> ResultRecord:
    """Make the record of a result, with copies of its displays, images and files. Call it in a thread."""
    return ResultRecord.of(result, files.put, lambda each: files.put_file(each.path) if each.path else None)


class Line(NamedTuple):
    """A line of a log.

    Args:
        data: Its bytes, without the line end; None if it is too long, or has no end.
        end: Where the next line begins, in bytes from the beginning of the log.
    """

    number: int
    data: bytes | None
    end: int
    size: int = 0
    cut_off: bool = False


def read_lines(file: BinaryIO, longest: int, *, after: Line | None = None) -> Iterator[Line]:
    """Read a file line by line; the arguments are those of `RunFolder.lines`."""
    number, end = (after.number, after.end) if after is not None else (0, 0)
    file.seek(end)
    while data := file.readline(longest + 1):
        number += 1
        if data.endswith(b"\n"):
            end += len(data)
            yield Line(number, data[:-1], end)
        else:
            size, ended = _skip_line(file, len(data))
            end += size + ended
            yield Line(number, None, end, size, cut_off=not ended)


class RunFolder:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def lines(self, longest: int, chain: Chain | None = None, *, after: Line | None = None) -> Iterator[Line]:
        """Read the log line by line; one of more than `longest` bytes is skipped without holding it in memory."""
        with self._opened(EVENTS, "log") as file:
            if chain is not None:
                chain.begin(file.fileno())
            try:
                if after is not None and os.fstat(file.fileno()).st_size < after.end:
                    raise RunFolderError(f"The log of {self.path} was replaced while it was read.")
                for line in read_lines(file, longest, after=after):
                    if chain is not None and line.data is not None:
                        chain.check(line.data)
                    elif chain is not None and not line.cut_off:
                        chain.broken = True
                    yield line
            except OSError as error:
                raise RunFolderError(f"{self.path / EVENTS} can't be read: {error.strerror}.") from error

    def read_file(self, file: StoredFile) -> bytes:
        """Return a file that the log refers to."""
        if file.sha256 is None:
            raise RunFileError(f"A file of {self.path} was left out: {file.note}.")
        name = f"{FILES}/{file.sha256}"
        if not 0 <= file.size <= MAX_FILE:
            raise RunFileError(f"{name} of {self.path} has {file.size:,} bytes; at most {MAX_FILE:,} are read.")
        try:
            with self._opened(file.sha256, name, folder=FILES) as opened:
                data = opened.read(file.size + 1)
        except RunFolderError as error:
            raise RunFileError(str(error)) from error
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
            raise RunFileError(f"{name} of {self.path} is not what the run has written: it was changed.")
        return data

    def path_of(self, file: StoredFile | None) -> Path | None:
        """Return the path of a file that the log refers to, or None if the folder does not have it."""
        if file is None or file.sha256 is None:
            return None
        folder = self.path / FILES
        path = folder / file.sha256
        try:
            kinds, size = (folder.lstat().st_mode, path.lstat().st_mode), path.lstat().st_size
        except OSError:
            return None
        return path if stat.S_ISDIR(kinds[0]) and stat.S_ISREG(kinds[1]) and size == file.size else None

    @contextmanager
    def _opened(self, name: str, what: str, *, folder: str | None = None) -> Iterator[BinaryIO]:
        folders: list[int] = []
        try:
            try:
                folders.append(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                if folder is not None:
                    folders.append(os.open(folder, _FOLDER, dir_fd=folders[-1]))
                file = open_regular(name, folder=folders[-1])
            except OSError as error:
                raise RunFolderError(self._describe(error, what)) from error
            with file:
                yield file
        finally:
            for descriptor in folders:
                os.close(descriptor)

    def _describe(self, error: OSError, what: str) -> str:
        """Return why a part of the folder could not be opened."""
        if not self.path.is_dir():
            kind = "is not a folder" if os.path.lexists(self.path) else "does not exist"
            return f"{self.path} {kind}. Give the folder of a run, as in `codeact run --save FOLDER`."
        parts = [EVENTS] if what == "log" else [FILES, what]
        if any((self.path / part).is_symlink() for part in parts):
            return f"The {what} of {self.path} is reached through a symbolic link, so it is not read."
        if error.errno == errno.EINVAL:
            return f"The {what} of {self.path} is not a regular file, so it is not read."
        if isinstance(error, FileNotFoundError) and what == "log":
            return f"{self.path} is not a run: it has no {EVENTS}."
        return f"The {what} of {self.path} can't be read: {error.strerror}."


def _skip_line(file: BinaryIO, size: int) -> tuple[int, bool]:
    """Read to the end of a line; return its bytes with those read before, and whether it has an end."""
    while data := file.readline(_PIECE):
        size += len(data)
        if data.endswith(b"\n"):
            return size - 1, True
    return size, False
