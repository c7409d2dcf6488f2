"""The copy of an attempt's folders, written from the pieces that another machine sends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from autogen_codeact.batch.pieces import Piece, PieceError
from autogen_codeact.runs.files import FILES, MAX_FILE
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.sandbox.files.manifest import is_safe

MAX_RECEIVED = 4 * 1024**3
"""Bytes that one attempt may send."""
LOCK_S = 5.0
_HASH = re.compile(r"[0-9a-f]{64}")


class FolderCopy:
    """Writes the pieces of one attempt. Its methods block for the disk.

    Args:
        log: Folder of the run log.
        work_dir: Folder with the files of the workspace.
        inputs: Folder for the files of the task. Default: none are taken.
        max_bytes: Bytes of all pieces together.
    """

    def __init__(self, log: Path, work_dir: Path, inputs: Path | None = None, *, max_bytes: int = MAX_RECEIVED) -> None:
        self._log = log
        self._work_dir = work_dir
        self._inputs = inputs
        self._left = max_bytes
        self._events = -1
        self._part = work_dir.with_name(f".{work_dir.name}.part")
        self._part_name: tuple[str, str] | None = None
        self._part_size = 0

    def write(self, piece: Piece) -> None:
        """Write one piece.

        Raises:
            PieceError: It does not belong here.
            OSError: It can't be written.
        """
        self._left -= len(piece.data) + 1
        if self._left < 0:
            raise PieceError("the attempt has sent more than is allowed for its log and files")
        match piece.header.kind:
            case "log":
                self._append(piece)
            case "removed":
                path = self._target(piece)
                with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    path.unlink()
            case "input" if piece.header.name.endswith("/"):
                self._target(piece).mkdir(parents=True, exist_ok=True)
            case "file" | "work" | "input":
                self._add(piece)
            case kind:
                raise PieceError(f"{kind!r} is not a part of a folder")

    def close(self) -> None:
        """Close the files; repeated calls are harmless."""
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
        with suppress(OSError):
            self._part.unlink()

    def _append(self, piece: Piece) -> None:
        if self._events < 0:
            self._log.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._events = os.open(self._log / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            _lock(self._events)  # so that others see that it is being written
        if os.fstat(self._events).st_size != piece.header.offset:
            raise PieceError("a piece of the log is missing")
        _write_all(self._events, piece.data, piece.header.offset)

    def _target(self, piece: Piece) -> Path:
        kind, name = piece.header.kind, piece.header.name
        if kind == "file":
            if not _HASH.fullmatch(name):
                raise PieceError(f"{name!r} is not the name of a file in a run log")
            return self._log / FILES / name
        if not is_safe(name.rstrip("/")):
            raise PieceError(f"{name!r} is not a path inside the workspace")
        folder = self._inputs if kind == "input" else self._work_dir
        if folder is None:
            raise PieceError(f"{kind!r} is not taken here")
        return folder / name

    def _add(self, piece: Piece) -> None:
        """Write a part of a file; whole files only are put in their place."""
        target, key = self._target(piece), (piece.header.kind, piece.header.name)
        if piece.header.offset == 0:
            self._part_name, self._part_size = key, 0
        if key != self._part_name or piece.header.offset != self._part_size:
            raise PieceError(f"a piece of {piece.header.name!r} is missing")
        self._part_size += len(piece.data)
        if key[0] == "file" and self._part_size > MAX_FILE:
            raise PieceError(f"{piece.header.name!r} is larger than a file of a run log may be")
        self._part.parent.mkdir(parents=True, exist_ok=True)
        mode = os.O_TRUNC if piece.header.offset == 0 else 0
        part = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | mode, 0o600)
        try:
            _write_all(part, piece.data, piece.header.offset)
        finally:
            os.close(part)
        if piece.header.last:
            self._part_name = None
            self._put(key[0], target)

    def _put(self, kind: str, target: Path) -> None:
        if kind == "file":
            with open(self._part, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != target.name:
                    raise PieceError(f"{target.name!r} has another content than its name says")
        _make_parents(target)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        shutil.move(self._part, target)


def _make_parents(target: Path) -> None:
    """Make the folders of a file; a file that is where a folder has to be is removed."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        for folder in reversed(target.parents):
            if folder.is_file():
                folder.unlink()
                break
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _lock(descriptor: int) -> None:
    until = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise PieceError("another process writes the run log") from None
            time.sleep(0.01)


def whole_lines(log: Path) -> None:
    """Cut off what is behind the last whole line of a log, as who continues it does."""
    try:
        file = open(log / EVENTS, "r+b")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - 64 * 1024)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        if end < size:
            file.truncate(end)
