"""Saves the files that code made in `codeact exec`, if no `--work-dir` was given."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from autogen_codeact.executors import ExecutionResult

FOLDER = "codeact-files"


class SavedFiles:
    """Copies the files of results into a new folder, which is made for the first of them."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self.folder: Path | None = None
        """The folder; None if there was no file."""

    def save(self, result: ExecutionResult) -> ExecutionResult:
        """Copy the files of a result, and return it with their new paths; one that can't be copied has a note."""
        saved = []
        for file in result.artifacts:
            if file.path is None:
                saved.append(file)
                continue
            try:
                target = self._made() / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.path, target)
                saved.append(replace(file, path=target))
            except OSError as error:
                saved.append(
                    replace(file, path=None, note=f"not kept: {error.strerror}; --work-dir FOLDER keeps files")
                )
        return replace(result, artifacts=tuple(saved))

    def _made(self) -> Path:
        number = 1
        while self.folder is None:
            folder = self._parent / (FOLDER if number == 1 else f"{FOLDER}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
            else:
                self.folder = folder
        return self.folder
