"""The last line of `--json`: a `TaskResult` or an error; docs/runs.md describes it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from autogen_codeact.cli.exit import EXIT_TERMINATED, Terminated, end_by_exception
from autogen_codeact.cli.output import print_json

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult


class LastJsonLine:
    """Prints the last line of `--json` however the command ends; a context manager around the command."""

    def __init__(self, enabled: bool, command: str = "run") -> None:
        self.enabled = enabled
        self.command = command
        self.advice: str | None = None
        """What to do after an error or a signal, if the run's folder does not say it."""
        self.run: Path | None = None  # the run's folder
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
            "advice": self.advice or resume_advice(self.run),
        }
        self._print({"type": "error", "outcome": "cancelled", "error": error, "run": absolute(self.run)})

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
    return {"type": "TaskResult", "stop_reason": stop_reason, "outcome": "completed", "run": absolute(run)}


def error_object(
    error: BaseException, run: Path | None = None, command: str = "run", advice: str | None = None
) -> dict[str, Any]:
    """Return the last line of a command that has failed."""
    cause = error.__cause__ if _of_model(error) and error.__cause__ is not None else error
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    details = {
        "class": type(cause).__name__,
        "message": message,
        "advice": resume_advice(run) or _advice(error, command) or advice,
    }
    return {"type": "error", "outcome": "failed", "error": details, "run": absolute(run)}


def _of_model(error: BaseException) -> bool:
    return type(error).__name__ == "CommandError" and str(error).startswith("The run failed.")


def _advice(error: BaseException, command: str) -> str | None:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "SandboxError" in names:
        return "`codeact doctor` checks this machine"
    if hasattr(error, "format_message") or ("CommandError" in names and not _of_model(error)):
        return f"`codeact {command} --help` lists the options"
    return None


def resume_advice(run: Path | None) -> str | None:
    """Return how a run is continued, if it has a log."""
    from autogen_codeact.runs.store import has_log, run_name  # noqa: PLC0415 - not needed for --help

    return f"`codeact resume {run_name(run)}` continues the run" if run is not None and has_log(run) else None


def absolute(path: Path | None) -> str | None:
    return os.path.abspath(path) if path is not None else None
