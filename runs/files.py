"""The folder `files/` of a run: contents by their hash, each stored once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from autogen_core.code_executor import CodeResult

from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.budget import Budget, TooLargeError, json_cost, text_cost
from autogen_codeact.runs.results import ResultRecord, StoredFile
from codeact_sandbox.files.private_folders import Identity
from codeact_sandbox.files.regular_files import open_regular

FILES = "files"
MAX_FILE = 64 * 1024 * 1024
"""Bytes of one stored file; a larger one is left out."""
MAX_ALL = 1024 * 1024 * 1024
"""Bytes of all stored files of a run."""
TOO_LARGE = "a run's folder keeps files of up to {limit:,} bytes"
TOO_MANY = "the files of a run's folder may have {limit:,} bytes together"


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


# Large values of an event


def restore_large(
    value: dict[str, Any],
    stored: dict[str, StoredFile],
    read: Callable[[StoredFile], bytes],
    budget: Budget | None = None,
    *,
    shorten: bool = False,
) -> None:
    """Put the parts of an event that are in files back into it."""
    budget = budget or Budget()
    for pointer in sorted(stored, key=lambda each: each.count("/")):
        keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
        parent: Any = value
        try:
            for key in keys[:-1]:
                parent = parent[int(key) if isinstance(parent, list) else key]
            last: Any = int(keys[-1]) if isinstance(parent, list) else keys[-1]
            if parent[last] is not None:
                raise ValueError(f"{pointer} has a value already")
            parent[last] = _restored(stored[pointer], read, budget, shorten=shorten)
        except (LookupError, TypeError) as error:
            raise ValueError(f"{pointer} leads nowhere in the event") from error


def _restored(file: StoredFile, read: Callable[[StoredFile], bytes], budget: Budget, *, shorten: bool) -> Any:
    name, is_json = f"{FILES}/{file.sha256}", file.format == "json"
    try:
        budget.check(file.size if file.sha256 is not None else 0, name)
        content = read(file)
        budget.take(json_cost(content, budget.left) if is_json else text_cost(content), name)
    except TooLargeError:
        if is_json or not shorten:
            raise
        return f"[a text of {file.size:,} bytes is not shown: it is in {name}]"
    return json.loads(content) if is_json else content.decode()
