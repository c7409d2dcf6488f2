"""The run log and the workspace of an attempt: what is new there, for the other side, which has a copy."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.files import FILES
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.writer import lock
from codeact_sandbox.files.manifest import is_safe

_END_OF_BLOCK = b'"block_finished"'


class Sent(NamedTuple):
    """Something that one side of an attempt sends.

    Args:
        kind: "log": lines of the run log. "files": a file of the run log. "work": a file of the workspace. "enter": a model call
            wants to begin. "used": the tokens of one. "idle": nothing has happened for a while. "result": the end.
        content: Bytes, or None for a file that is gone; or a pair of tokens; or the result.
    """

    kind: Literal["log", "files", "work", "enter", "used", "idle", "result"]
    content: Any = None
    name: str = ""


class FolderChanges:
    """Reads what is new in the run log and in the workspace since the last time. Its methods block for the disk.

    Whoever has all of it can continue the run: a line of the log comes after the files that it names and after the workspace
    that the code had left. Only whole lines come.
    """

    def __init__(self, log: Path, work_dir: Path) -> None:
        self._events = log / EVENTS
        self._folders: dict[Literal["files", "work"], Path] = {"files": log / FILES, "work": work_dir}
        self._marks: dict[str, dict[str, tuple[int, int, int]]] = {}
        self._read = 0

    def has_grown(self) -> bool:
        """Return whether the log has got longer."""
        with suppress(FileNotFoundError):
            return self._events.stat().st_size > self._read
        return False

    def take(self, *, whole: bool = False) -> Generator[Sent]:
        """Yield what is new up to now."""
        lines = b""
        with suppress(FileNotFoundError), open(self._events, "rb") as file:
            file.seek(self._read)
            lines = file.read()
            lines = lines[: lines.rfind(b"\n") + 1]
        yield from self._changed("files")
        if whole or _END_OF_BLOCK in lines:
            yield from self._changed("work")
        if lines:
            yield Sent("log", lines)
            self._read += len(lines)

    def _changed(self, kind: Literal["files", "work"]) -> Generator[Sent]:
        folder = self._folders[kind]
        before, now = self._marks.get(kind, {}), _marks(folder)
        for name in before.keys() - now.keys():
            yield Sent(kind, None, name)
        for name, mark in now.items():
            if before.get(name) != mark:
                with suppress(FileNotFoundError):
                    yield Sent(kind, (folder / name).read_bytes(), name)
        self._marks[kind] = now


def _marks(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the regular files of a folder, with what differs when one is written."""
    found: dict[str, tuple[int, int, int]] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):
                status, name = path.lstat(), path.relative_to(folder).as_posix()
                if stat.S_ISREG(status.st_mode) and is_safe(name):
                    found[name] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


class FolderCopy:
    """Writes what the other side has sent. Its methods block for the disk."""

    def __init__(self, log: Path, work_dir: Path) -> None:
        self._log = log
        self._folders = {"files": log / FILES, "work": work_dir}
        self._events = -1

    def write(self, sent: Sent) -> None:
        """Write one thing."""
        if sent.kind == "log":
            self._append(sent.content)
            return
        if not is_safe(sent.name):
            raise ValueError(f"{sent.name!r} is not a path inside the workspace")
        target = self._folders[sent.kind] / sent.name
        if sent.content is None:
            target.unlink(missing_ok=True)
            return
        for folder in reversed(target.parents):
            if folder.is_file():  # it was a file, and is a folder now
                folder.unlink()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.is_dir():
            shutil.rmtree(target)
        with atomic_binary_file(target, private=True) as file:
            file.write(sent.content)

    def close(self) -> None:
        """Let others write the log; repeated calls are harmless."""
        events, self._events = self._events, -1
        if events >= 0:
            os.close(events)

    def _append(self, lines: bytes) -> None:
        if self._events < 0:
            self._log.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._events = os.open(self._log / EVENTS, flags, 0o600)
            lock(self._events, self._log)  # so that others see that it is being written
            size = os.fstat(self._events).st_size
            whole = os.pread(self._events, size, 0).rfind(b"\n") + 1  # what is behind it, a killed process has left
            os.ftruncate(self._events, whole)
            os.lseek(self._events, whole, os.SEEK_SET)
        view = memoryview(lines)
        while view:
            view = view[os.write(self._events, view) :]
