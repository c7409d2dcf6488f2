"""A run's folder, read without trust: no symbolic link in it is followed, and only regular files are opened."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from autogen_codeact.runs.chain import Chain
from autogen_codeact.runs.errors import RunFileError, RunFolderError
from autogen_codeact.runs.files import FILES, MAX_FILE
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.runs.store import EVENTS
from codeact_sandbox.files.regular_files import open_regular

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 64 * 1024


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
    """A run's folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def lines(self, longest: int, chain: Chain | None = None, *, after: Line | None = None) -> Iterator[Line]:
        """Read the log line by line.

        Args:
            longest: Bytes of the longest line that is returned with data. A longer one is skipped without holding it in memory.
            chain: Checks each line. Default: they are not checked.
            after: The line after which to begin. Default: at the beginning.
        """
        with self.open_log() as file:
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

    def open_log(self) -> AbstractContextManager[BinaryIO]:
        """Open the log for reading."""
        return self._opened(EVENTS, "log")

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
