"""Summaries of runs, for lists."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from autogen_codeact.runs.errors import RunError, RunFolderError
from autogen_codeact.runs.events import LogStopped, ModelCallFinished, RunFinished
from autogen_codeact.runs.reader import Gap, RawEvent, Run, load_run
from autogen_codeact.runs.store import EVENTS, is_being_written

MAX_TEXT = 10_000
_MAX = 10**12  # greater numbers than this are no counts and no seconds
Outcome = Literal["completed", "failed", "cancelled", "waiting", "running", "interrupted"]


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run.

    Args:
        path: Its folder.
        run: Its identifier.
        name: Name of the agent or team.
        started: When it started.
        task: Its task, as text; at most 10,000 characters.
        outcome: How it ended; `waiting` for an answer, `running` while a process writes the log, `interrupted` if its process
            ended before it.
        steps: How many times code ran.
        tokens: Tokens that its models read and wrote.
        seconds: How long it took, without the time between its end in one process and its continuation in another.
        error: Why it failed, or None.
        gaps: Parts of its log that can't be read; an incomplete last line does not count.
    """

    path: Path
    run: str
    name: str
    started: datetime
    task: str
    outcome: Outcome
    steps: int
    tokens: int
    seconds: float
    error: str | None = None
    gaps: int = 0


@dataclass(frozen=True)
class UnreadableRun:
    """A folder with a log that can't be read."""

    path: Path
    reason: str


def list_runs(folder: str | os.PathLike[str]) -> list[RunSummary | UnreadableRun]:
    """Return the runs in a folder, the latest first, and then those that can't be read.

    Args:
        folder: A folder with the folders of runs in it, or the folder of one run. Symbolic links in it are left out.

    Raises:
        RunFolderError: There is no such folder.
    """
    path = Path(folder)
    try:
        entries = sorted(each for each in path.iterdir() if not each.is_symlink() and os.path.lexists(each / EVENTS))
    except NotADirectoryError:
        raise RunFolderError(f"{path} is not a folder.") from None
    except FileNotFoundError:
        raise RunFolderError(f"{path} does not exist. `codeact run --save {path}/NAME` keeps a run in it.") from None
    except OSError as error:
        raise RunFolderError(f"{path} can't be read: {error.strerror}.") from error
    found = [_summary_or_reason(each) for each in ([path] if os.path.lexists(path / EVENTS) else entries)]
    read = [each for each in found if isinstance(each, RunSummary)]
    return [
        *sorted(read, key=lambda each: each.started, reverse=True),
        *(e for e in found if not isinstance(e, RunSummary)),
    ]


def _summary_or_reason(path: Path) -> RunSummary | UnreadableRun:
    try:
        return summarize(load_run(path))
    except RunError as error:
        return UnreadableRun(path, str(error))


def summarize(run: Run) -> RunSummary:
    """Read a run to its end and return its summary.

    Raises:
        RunFolderError: The log can't be read.
        RunError: A newer version of this package has written to it.
    """
    totals = RunTotals()
    for line in run.raw_events():
        totals.add(line, run)
    started, failure = run.started, totals.finished.error if totals.finished is not None else None
    return RunSummary(
        path=run.folder.path,
        run=started.run,
        name=started.name[:MAX_TEXT],
        started=started.time,
        task=task_text(started.task or ())[:MAX_TEXT],
        outcome=totals.outcome(live=totals.finished is None and is_being_written(run.folder.path)),
        steps=totals.blocks,
        tokens=totals.prompt_tokens + totals.completion_tokens,
        seconds=totals.seconds,
        error=f"{failure.type}: {failure.message}"[:MAX_TEXT] if failure is not None else None,
        gaps=totals.gaps,
    )


class RunTotals:
    """What the log of a run says of all of it; most events are only counted, so that many logs are read fast."""

    def __init__(self) -> None:
        self.blocks = self.model_calls = self.prompt_tokens = self.completion_tokens = 0
        self.resumed = 0
        self.gaps = 0
        """Parts of the log that can't be read; an incomplete last line does not count."""
        self.seconds = 0.0
        """Seconds until the last event, without those between two processes: their clocks have nothing in common."""
        self.finished: RunFinished | None = None
        """How the run has ended, if nothing follows in the log."""
        self.stopped: str | None = None
        """Why the run went on without a log, or None."""
        self._before: float | None = None

    def add(self, line: RawEvent | Gap, run: Run) -> None:
        """Take the next line of the log into account."""
        if isinstance(line, Gap):
            self.gaps += not line.cut_off
            return
        self.see(line)
        self.finished = self.stopped = None
        match line.name:
            case "block_started":
                self.blocks += 1
            case "run_resumed":
                self.resumed += 1
            case "model_call_finished" | "run_finished" | "log_stopped":
                self._take(run.parse(line))

    def see(self, line: RawEvent) -> None:
        """Add the time until an event."""
        now = line.data.get("monotonic")
        if not isinstance(now, int | float) or not abs(now) < _MAX:  # NaN is not less, either
            return
        if self._before is not None and now > self._before and line.name != "run_resumed":
            self.seconds += now - self._before
        self._before = now

    def outcome(self, *, live: bool) -> Outcome:
        """Return how the run has ended, or that it goes on or was interrupted."""
        if self.finished is not None:
            return self.finished.outcome
        return "running" if live else "interrupted"

    def _take(self, event: object) -> None:
        match event:
            case ModelCallFinished(result=dict() as result):
                usage = usage_of(result) or {}
                self.model_calls += 1
                self.prompt_tokens += usage.get("prompt_tokens", 0)
                self.completion_tokens += usage.get("completion_tokens", 0)
            case RunFinished():
                self.finished = event
            case LogStopped():
                self.stopped = event.reason
                self.gaps += 1


def usage_of(result: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the tokens that a model has read and written for an answer; 0 for an invalid number."""
    usage = result.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    return {name: each if type(each) is int and 0 <= each < _MAX else 0 for name, each in counts.items()}


def task_text(messages: Iterable[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a task; its images and other things are named by their type."""
    parts: list[Any] = []
    for message in messages:
        content = message.get("content")
        parts += (
            content if isinstance(content, list) else [content if isinstance(content, str) else message.get("type")]
        )
    return "\n".join(part if isinstance(part, str) else "[image]" for part in parts if part)
