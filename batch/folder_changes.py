"""The folders of an attempt as pieces: what has been added since the last time, so that another machine has a copy."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from autogen_codeact.batch.pieces import PIECE_BYTES, Header, Kind, Piece, PieceError
from autogen_codeact.runs.files import FILES
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.writer import MAX_LINE
from autogen_codeact.sandbox.files.manifest import is_safe

_END_OF_BLOCK = b'"block_finished"'
_Mark = tuple[int, int, int]


class FolderChanges:
    """Reads what is new in the run log and in the workspace of an attempt. Its methods block for the disk.

    Whoever has all pieces can continue the run: a line of the log comes after the files that it names and after the workspace
    that the code had left. Only whole lines come.

    Args:
        log: Folder of the run log.
        work_dir: Folder with the files of the workspace.
    """

    def __init__(self, log: Path, work_dir: Path) -> None:
        self._log = log
        self._work_dir = work_dir
        self._sent = 0
        self._files: set[str] = set()
        self._work: dict[str, _Mark] | None = None

    def skip(self) -> None:
        """Take what is there now as known to the other side."""
        for _ in self.pieces(whole=True):
            pass

    def has_grown(self) -> bool:
        """Return whether the log has got longer."""
        with suppress(OSError):
            return (self._log / EVENTS).stat().st_size > self._sent
        return False

    def pieces(self, *, whole: bool = False) -> Generator[Piece, None, None]:
        """Yield what is new up to now.

        Args:
            whole: Whether the workspace is read also if no block has ended. Default: no.

        Raises:
            OSError: Something can't be read.
        """
        try:
            size = (self._log / EVENTS).stat().st_size
        except FileNotFoundError:
            size = 0
        yield from self._new_files()
        with suppress(FileNotFoundError), open(self._log / EVENTS, "rb") as file:
            while self._sent < size:
                file.seek(self._sent)
                data = file.read(min(size - self._sent, MAX_LINE + PIECE_BYTES))
                data = data[: data.rfind(b"\n") + 1]
                if not data:
                    break
                if self._work is None or _END_OF_BLOCK in data:
                    yield from self._changed_work()
                    whole = False
                for at in range(0, len(data), PIECE_BYTES):
                    part = data[at : at + PIECE_BYTES]
                    yield Piece(Header(kind="log", offset=self._sent), part)
                    self._sent += len(part)
        if whole:
            yield from self._changed_work()

    def _new_files(self) -> Iterator[Piece]:
        try:
            names = [entry.name for entry in os.scandir(self._log / FILES)]
        except FileNotFoundError:
            return
        for name in names:
            if name in self._files or name.startswith("."):
                continue
            yield from read_file("file", name, self._log / FILES / name)
            self._files.add(name)

    def _changed_work(self) -> Iterator[Piece]:
        before, now = self._work or {}, dict(_regular_files(self._work_dir))
        for name in before.keys() - now.keys():
            yield Piece(Header(kind="removed", name=name))
        for name, fingerprint in now.items():
            if before.get(name) != fingerprint:
                with suppress(FileNotFoundError):
                    yield from read_file("work", name, self._work_dir / name)
        self._work = now


def _regular_files(folder: Path) -> Iterator[tuple[str, _Mark]]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            with suppress(OSError):
                found = path.lstat()
                relative = path.relative_to(folder).as_posix()
                if stat.S_ISREG(found.st_mode) and is_safe(relative):
                    yield relative, (found.st_size, found.st_mtime_ns, found.st_ino)


def read_file(kind: Kind, name: str, path: Path) -> Iterator[Piece]:
    """Yield a file in pieces.

    Raises:
        OSError: It can't be read.
    """
    with open(path, "rb") as file:
        yield from _pieces_of(kind, name, file)


def _pieces_of(kind: Kind, name: str, file: BinaryIO) -> Iterator[Piece]:
    offset, data = 0, file.read(PIECE_BYTES)
    while True:
        following = file.read(PIECE_BYTES) if len(data) == PIECE_BYTES else b""
        yield Piece(Header(kind=kind, name=name, offset=offset, last=not following), data)
        if not following:
            return
        offset, data = offset + len(data), following


def input_pieces(sources: list[str]) -> Generator[Piece, None, None]:
    """Yield files and folders of a task; the name of each begins with its number in the list.

    Raises:
        PieceError: There is no such file.
        OSError: It can't be read.
    """
    for number, source in enumerate(sources):
        path = Path(source)
        if not path.exists():
            raise PieceError(f"files: {source} does not exist")
        if not path.is_dir():
            yield from read_file("input", str(number), path)
            continue
        yield Piece(Header(kind="input", name=f"{number}/"))
        for name, _ in _regular_files(path):
            yield from read_file("input", f"{number}/{name}", path / name)
