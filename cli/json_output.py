"""What `--json` prints of a run: one object a line, and finally a `TaskResult` or an error; docs/runs.md describes them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from autogen_codeact.cli.exit import EXIT_TERMINATED, Terminated, end_by_exception
from autogen_codeact.cli.output import print_json
from codeact_sandbox.files.regular_files import open_regular

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult

    from autogen_codeact.cli.transcript import Message
    from autogen_codeact.runs import Run
    from autogen_codeact.runs.results import ArtifactRecord, DisplayRecord, ResultRecord, StoredFile
    from codeact_sandbox.types.displays import Display
    from codeact_sandbox.types.result import Artifact, Result

MAX_INLINE = 256 * 1024
"""Bytes of an image or another binary form of a display that is printed as base64; a larger one is only in the run's folder."""
LOG_S = 5.0
"""Seconds to wait until the result of a block is in the log."""
MAX_MISSES = 2
"""Results that were not found in the log, after which it is not read any more: it has ended because the disk is full."""


class LastJsonLine:
    """Prints the last line of `--json` however the command ends; a context manager around the command."""

    def __init__(self, enabled: bool, command: str = "run") -> None:
        self.enabled = enabled
        self.command = command
        self.advice: str | None = None
        """What to do after an error or a signal, if the run's folder does not say it."""
        self.run: Path | None = None
        """The run's folder."""
        self._result: dict[str, Any] | None = None
        self._printed = not enabled

    def __enter__(self) -> Self:
        if self.enabled:
            end_by_exception()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = error.exit_code if isinstance(error, typer.Exit) else None
        if status is not None:
            error = None
        if error is None and self._result is not None:
            self._print(self._result)
        elif isinstance(error, Terminated) or status == EXIT_TERMINATED:
            self.cancelled(signal.SIGTERM)
        elif error is None or isinstance(error, KeyboardInterrupt):
            self.cancelled(signal.SIGINT)
        else:
            self._print(error_object(error, self.run, self.command, self.advice))

    def finish(self, result: TaskResult) -> None:
        """Keep the result of a run, to be printed at the end."""
        self.end_with(result_object(result.stop_reason, self.run))

    def end_with(self, value: dict[str, Any]) -> None:
        """Keep an object, to be printed at the end."""
        self._result = value

    def cancelled(self, number: int) -> None:
        """Print that the run was ended by a signal."""
        name = signal.Signals(number).name
        error = {
            "class": "Interrupted",
            "message": f"stopped by {name}",
            "advice": self.advice or _resume_advice(self.run),
        }
        self._print({"type": "error", "outcome": "cancelled", "error": error, "run": _absolute(self.run)})

    def discard(self) -> None:
        """Print no last line."""
        self._printed = True

    def _print(self, value: dict[str, Any]) -> None:
        if not self._printed:
            self._printed = True
            with suppress(OSError):
                print_json(value)


def result_object(stop_reason: str | None, run: Path | None) -> dict[str, Any]:
    """Return the last line of a run that has ended with a result."""
    return {"type": "TaskResult", "stop_reason": stop_reason, "outcome": "completed", "run": _absolute(run)}


def error_object(
    error: BaseException, run: Path | None = None, command: str = "run", advice: str | None = None
) -> dict[str, Any]:
    """Return the last line of a command that has failed."""
    cause = error.__cause__ if _of_model(error) and error.__cause__ is not None else error
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    details = {
        "class": type(cause).__name__,
        "message": message,
        "advice": _resume_advice(run) or _advice(error, command) or advice,
    }
    return {"type": "error", "outcome": "failed", "error": details, "run": _absolute(run)}


def _of_model(error: BaseException) -> bool:
    return type(error).__name__ == "CommandError" and str(error).startswith("The run failed.")


def _advice(error: BaseException, command: str) -> str | None:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "SandboxError" in names:
        return "`codeact doctor` checks this machine"
    if hasattr(error, "format_message") or ("CommandError" in names and not _of_model(error)):
        return f"`codeact {command} --help` lists the options"
    return None


def _resume_advice(run: Path | None) -> str | None:
    from autogen_codeact.cli.run_names import has_log, run_name  # noqa: PLC0415 - not needed for --help

    return f"`codeact resume {run_name(run)}` continues the run" if run is not None and has_log(run) else None


def _absolute(path: Path | None) -> str | None:
    return os.path.abspath(path) if path is not None else None


# The messages


def tells_result(message: dict[str, Any]) -> bool:
    """Return whether a message, as AutoGen dumps it, tells how code has ended."""
    if message.get("type") == "CodeExecutionEvent":
        return True
    metadata = message.get("metadata")
    return message.get("type") == "TextMessage" and isinstance(metadata, dict) and "exit_code" in metadata


class JsonPrinter:
    """Prints the messages of a run, those about results of code with the files and displays of it."""

    def __init__(self, folder: Path | None, *, files_stay: bool) -> None:
        self.watcher = _Results()
        """An observer for `executor.attach(observers=[…])`."""
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
        if hasattr(result, "displays"):
            results = [result]  # type: ignore[list-item]
        files = {each.name: each for one in results for each in one.artifacts}
        return {
            "artifacts": [_artifact(each, self._files_stay) for each in files.values()],
            "displays": [_display(each) for one in results for each in one.displays],
        }


class _Results:
    """Keeps the results of the blocks of a sandbox."""

    def __init__(self) -> None:
        self.results: list[Result] = []

    def block_finished(self, event: Any) -> None:
        if event.result is not None:
            self.results.append(event.result)

    def _ignore(self, event: Any) -> None:
        pass

    sandbox_started = sandbox_stopped = block_started = call_started = call_finished = _ignore


class _LoggedResults:
    """Reads the results of blocks from a log while it is being written."""

    def __init__(self, folder: Path) -> None:
        from autogen_codeact.runs import RunError  # noqa: PLC0415 - not needed for --help
        from autogen_codeact.runs.folder import RunFolder  # noqa: PLC0415
        from autogen_codeact.runs.reader import LogReader  # noqa: PLC0415

        self.misses = 0
        self._folder = folder
        self._reader = LogReader(RunFolder(folder))
        self._run: Run | None = None
        with suppress(RunError):
            for _ in self._reader.read(follow=True):  # what a run that is continued has had
                pass

    @property
    def run(self) -> Run:
        from autogen_codeact.runs import load_run  # noqa: PLC0415 - see above

        if self._run is None:
            self._run = load_run(self._folder)
        return self._run

    def next(self) -> ResultRecord | None:
        """Return the next result; None if there is none within `LOG_S`."""
        from autogen_codeact.runs import RunError  # noqa: PLC0415 - see above
        from autogen_codeact.runs.events import BlockFinished  # noqa: PLC0415
        from autogen_codeact.runs.reader import RawEvent  # noqa: PLC0415

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
    return {
        "artifacts": [_kept_artifact(each, run) for each in record.artifacts],
        "displays": [_kept_display(each, run) for each in record.displays],
    }


def _kept_artifact(artifact: ArtifactRecord, run: Run) -> dict[str, Any]:
    file = artifact.file
    return {
        "name": artifact.name,
        "size": artifact.size,
        "media_type": artifact.media_type,
        "sha256": file.sha256 if file is not None else None,
        "path": _absolute(run.folder.path_of(file)),
        "note": artifact.note or (file.note if file is not None else None),
    }


def _kept_display(display: DisplayRecord, run: Run) -> dict[str, Any]:
    forms = [_text_form(kind, value) for kind, value in display.data.items()]
    return {"name": display.name, "forms": [*forms, *(_kept_form(k, file, run) for k, file in display.files.items())]}


def _kept_form(kind: str, file: StoredFile, run: Run) -> dict[str, Any]:
    from autogen_codeact.runs import RunFileError  # noqa: PLC0415 - see above

    form = {"type": kind, "size": file.size, "sha256": file.sha256, "path": _absolute(run.folder.path_of(file))}
    data = None
    if file.size <= MAX_INLINE:
        with suppress(RunFileError):
            data = run.read_file(file)
    return {**form, "base64": _base64(data), "note": file.note}


def _text_form(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "text": value} if isinstance(value, str) else {"type": kind, "json": value}


def _artifact(artifact: Artifact, stays: bool) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "size": artifact.size,
        "media_type": artifact.media_type,
        "sha256": _hash(artifact.path) if artifact.path is not None else None,
        "path": _absolute(artifact.path) if stays else None,
        "note": artifact.note,
    }


def _display(display: Display) -> dict[str, Any]:
    forms = [_binary_form(k, v) if isinstance(v, bytes) else _text_form(k, v) for k, v in display.forms.items()]
    return {"name": display.name, "forms": sorted(forms, key=lambda form: "base64" in form)}


def _binary_form(kind: str, data: bytes) -> dict[str, Any]:
    fits = len(data) <= MAX_INLINE
    return {
        "type": kind,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "path": None,
        "base64": _base64(data if fits else None),
        "note": None if fits else f"of more than {MAX_INLINE:,} bytes; a run that is kept has it",
    }


def _base64(data: bytes | None) -> str | None:
    return base64.b64encode(data).decode("ascii") if data is not None else None


def _hash(path: Path) -> str | None:
    """Return the hash of a file that code has written; None if it is gone, or no regular file."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
