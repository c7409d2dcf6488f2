"""The run log and the workspace of an attempt: what is new there, for the other side, which has a copy."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.folder import FILES
from autogen_codeact.runs.store import EVENTS
from codeact_sandbox.files.manifest import is_safe

Files = dict[tuple[str, str], bytes | None]
"""Contents by "log" or "work" and the name there; None for a file that is gone. The events of the run are last."""


class Folders:
    """The folders of an attempt. The methods block for the disk."""

    def __init__(self, log: Path, work_dir: Path) -> None:
        self._folders = {"log": log, "work": work_dir}
        self._marks: dict[str, dict[str, tuple[int, int, int]]] = {"log": {}, "work": {}}

    def changes(self, *, with_work: bool = True) -> Files:
        """Return what is new since the last time: whoever has all of it can continue the run."""
        events = self._folders["log"] / EVENTS
        found: Files = {("log", EVENTS): events.read_bytes()} if events.exists() else {}
        return {**(self._changed("work") if with_work else {}), **self._changed("log"), **found}

    def _changed(self, kind: str) -> Files:
        folder = self._folders[kind]
        before, now = self._marks[kind], _marks(folder)
        if kind == "log":  # the events are sent whole, and the reserve is of the other machine
            now = {name: mark for name, mark in now.items() if name.startswith(f"{FILES}/")}
        found: Files = dict.fromkeys(((kind, name) for name in before.keys() - now.keys()), None)
        for name, mark in now.items():
            if before.get(name) != mark:
                with suppress(FileNotFoundError):
                    found[kind, name] = (folder / name).read_bytes()
        self._marks[kind] = now
        return found

    def write(self, files: Files) -> None:
        """Write what the other side has sent."""
        for (kind, name), content in files.items():
            if not is_safe(name):
                raise ValueError(f"{name!r} is not a path inside the workspace")
            target = self._folders[kind] / name
            if content is None:
                target.unlink(missing_ok=True)
                continue
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            with atomic_binary_file(target, private=True) as file:
                file.write(content)


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
