"""The messages of a run as `--json` prints them, with the files and displays of results of code; docs/runs.md describes them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from autogen_codeact.cli.exit import absolute
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.progress import Watcher
from autogen_codeact.cli.transcript import Message
from autogen_codeact.runs import Run, RunError, load_run
from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import BlockFinished
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.runs.reader import LogReader, RawEvent
from autogen_codeact.runs.results import ArtifactRecord, DisplayRecord, ReadBytes, ResultRecord, StoredFile
from codeact_sandbox.files.regular_files import open_regular
from codeact_sandbox.types.result import Artifact, Result

MAX_INLINE = 256 * 1024
"""Bytes of an image or another binary form of a display that is printed as base64; a larger one is only in the run's folder."""
LOG_S = 5.0  # seconds to wait until the result of a block is in the log
MAX_MISSES = 2
"""Results that were not found in the log, after which it is not read any more: it has ended because the disk is full."""


def tells_result(message: dict[str, Any]) -> bool:
    """Return whether a message, as AutoGen dumps it, tells how code has ended."""
    if message.get("type") == "CodeExecutionEvent":
        return True
    metadata = message.get("metadata")
    return message.get("type") == "TextMessage" and isinstance(metadata, dict) and "exit_code" in metadata


class JsonPrinter:
    """Prints the messages of a run, those about results of code with the files and displays of it."""

    def __init__(self, folder: Path | None, *, files_stay: bool) -> None:
        self.watcher = _Results()  # an observer for `executor.attach(observers=[…])`
        self._log = _LoggedResults(folder) if folder is not None else None
        self._files_stay = files_stay

    async def show(self, message: Message) -> None:
        """Print a message."""
        value = dict(message.dump())
        if tells_result(value):
            value |= await asyncio.to_thread(self._attached, getattr(message, "result", None))
        print_json(value)

    def _attached(self, result: object) -> dict[str, Any]:
        results, self.watcher.results = self.watcher.results, []
        if self._log is not None and self._log.misses < MAX_MISSES and (logged := self._log.next()) is not None:
            return record_fields(logged, self._log.run)
        if isinstance(result, Result):
            results = [result]
        contents: dict[str | None, bytes] = {}

        def keep(data: bytes) -> StoredFile:
            note = f"of more than {MAX_INLINE:,} bytes; a run that is kept has it" if len(data) > MAX_INLINE else None
            file = StoredFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data), note=note)
            contents[file.sha256] = data
            return file

        files = {each.name: each for one in results for each in one.artifacts}.values()
        artifacts = [ArtifactRecord.of(each, _stored(each)) for each in files]
        displays = [DisplayRecord.of(each, keep) for one in results for each in one.displays]
        return {
            "artifacts": [_artifact(each, each.path if self._files_stay else None) for each in artifacts],
            "displays": [_display(each, lambda file: contents[file.sha256], lambda _: None) for each in displays],
        }


class _Results(Watcher):
    def __init__(self) -> None:
        self.results: list[Result] = []

    def block_finished(self, event: Any) -> None:
        if event.result is not None:
            self.results.append(event.result)


class _LoggedResults:
    """Reads the results of blocks from a log while it is being written."""

    def __init__(self, folder: Path) -> None:
        self.misses = 0
        self._folder = folder
        self._reader = LogReader(RunFolder(folder))
        with suppress(RunError):
            for _ in self._reader.read(follow=True):  # what a run that is continued has had
                pass

    @cached_property
    def run(self) -> Run:
        return load_run(self._folder)

    def next(self) -> ResultRecord | None:
        """Return the next result; None if there is none within `LOG_S`."""
        until = time.monotonic() + LOG_S
        while time.monotonic() < until:
            try:
                for raw in self._reader.read(follow=True):
                    if isinstance(raw, RawEvent) and raw.name == "block_finished":
                        event = self.run.parse(raw)
                        if isinstance(event, BlockFinished):
                            return event.result
            except RunError:
                break
            time.sleep(0.01)
        self.misses += 1
        return None


def record_fields(record: ResultRecord | None, run: Run) -> dict[str, Any]:
    """Return the files and displays of a result in a log."""
    if record is None:
        return {"artifacts": [], "displays": []}
    path_of = run.folder.path_of
    return {
        "artifacts": [_artifact(each, path_of(each.file)) for each in record.artifacts],
        "displays": [_display(each, run.read_file, path_of) for each in record.displays],
    }


def _artifact(artifact: ArtifactRecord, path: Path | None) -> dict[str, Any]:
    file = artifact.file or StoredFile(sha256=None, size=artifact.size)
    return {
        "name": artifact.name,
        "size": artifact.size,
        "media_type": artifact.media_type,
        "sha256": file.sha256,
        "path": absolute(path),
        "note": artifact.note or file.note,
    }


def _display(display: DisplayRecord, read: ReadBytes, path_of: Callable[[StoredFile], Path | None]) -> dict[str, Any]:
    forms: list[dict[str, Any]] = [
        {"type": kind, "text" if isinstance(value, str) else "json": value} for kind, value in display.data.items()
    ]
    for kind, file in display.files.items():
        text = None
        if file.size <= MAX_INLINE:
            with suppress(RunFileError):
                text = base64.b64encode(read(file)).decode("ascii")
        known = {"size": file.size, "sha256": file.sha256, "note": file.note}
        forms.append({"type": kind, **known, "path": absolute(path_of(file)), "base64": text})
    return {"name": display.name, "forms": forms}


def _stored(artifact: Artifact) -> StoredFile:
    """Return the hash of a file that code has written; none if it is gone, or no regular file."""
    sha256 = None
    with suppress(OSError):
        if artifact.path is not None:
            with open_regular(artifact.path) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return StoredFile(sha256=sha256, size=artifact.size)
