"""Shows how code has changed files: the lines that differ."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.differences import differing_lines

MAX_FILE_BYTES = 128 * 1024
MAX_FILES = 500
MAX_LINES = 60
_TOO_LONG = "[{count} more lines differ]"
_TOO_DIFFERENT = "[not shown: too much differs]"
_BINARY = "[not shown: it is not text, or too long]"


class FileChanges:
    """Compares the files of a workspace with what they were."""

    def __init__(self, folder: Path | None) -> None:
        self._before: dict[str, list[str] | None] = {}
        self._folder = folder

    async def begin(self) -> None:
        """Read the files as they are."""
        if self._folder is not None:
            await asyncio.to_thread(self._read_all, self._folder)

    def _read_all(self, folder: Path) -> None:
        for parent, _, names in os.walk(folder):
            for name in sorted(names):
                if len(self._before) >= MAX_FILES:
                    return
                path = Path(parent, name)
                self._before[path.relative_to(folder).as_posix()] = _lines(path)

    async def changes(self, result: ExecutionResult) -> list[tuple[str, list[str]]]:
        """Return the files that a block has changed, each with the lines of a unified diff; new text files have only `+`."""
        return await asyncio.to_thread(self._changes, result)

    def _changes(self, result: ExecutionResult) -> list[tuple[str, list[str]]]:
        changed = []
        shown = {display.name for display in result.displays}
        for artifact in result.artifacts:
            if artifact.path is None or artifact.name in shown:
                continue
            before, after = self._before.get(artifact.name, []), _lines(artifact.path)
            if len(self._before) < MAX_FILES or artifact.name in self._before:
                self._before[artifact.name] = after
            if after is None or before is None:
                changed.append((artifact.name, [_BINARY]))
            elif (lines := differing_lines(before, after, context=2)) is None:
                changed.append((artifact.name, [_TOO_DIFFERENT]))
            elif lines := lines[2:]:
                more = len(lines) - MAX_LINES
                changed.append(
                    (artifact.name, [*lines[:MAX_LINES], *([_TOO_LONG.format(count=more)] if more > 0 else [])])
                )
        return changed


def _lines(path: Path) -> list[str] | None:
    """Return the lines of a small text file; None if it is another one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        return data.decode().splitlines() if len(data) <= MAX_FILE_BYTES and b"\0" not in data else None
    except (OSError, UnicodeDecodeError):
        return None
