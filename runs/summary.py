"""Summaries of runs, for lists."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from autogen_codeact.runs.errors import RunError, RunFolderError
from autogen_codeact.runs.events import ModelCallFinished, RunFinished
from autogen_codeact.runs.reader import RawEvent, Run, load_run
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
        gaps: Parts of its log that can't be read; its last line, if incomplete, is none.
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
        RunVersionError: A newer version of this package has written to it.
    """
    finished: RunFinished | None = None
    steps = tokens = gaps = 0
    clock = RunClock()
    for raw in run.raw_events():
        if not isinstance(raw, RawEvent):
            gaps += not raw.cut_off
            continue
        clock.see(raw.name, raw.data.get("monotonic"))
        steps += raw.name == "block_started"
        if raw.name == "run_resumed":
            finished = None
        elif raw.name in ("model_call_finished", "run_finished"):
            event = run.parse(raw)
            if isinstance(event, ModelCallFinished):
                tokens += _tokens(event.result)
            elif isinstance(event, RunFinished):
                finished = event
    started, failure = run.started, finished.error if finished is not None else None
    unfinished: Outcome = "running" if finished is None and is_being_written(run.folder.path) else "interrupted"
    return RunSummary(
        path=run.folder.path,
        run=started.run,
        name=started.name[:MAX_TEXT],
        started=started.time,
        task=task_text(started.task or ())[:MAX_TEXT],
        outcome=finished.outcome if finished is not None else unfinished,
        steps=steps,
        tokens=tokens,
        seconds=clock.seconds,
        error=f"{failure.type}: {failure.message}"[:MAX_TEXT] if failure is not None else None,
        gaps=gaps,
    )


class RunClock:
    """Adds up the time that a run took in each of its processes: their monotonic clocks have nothing in common."""

    def __init__(self) -> None:
        self.seconds = 0.0  # seconds until the last event
        self._before: float | None = None

    def see(self, name: str, now: object) -> None:
        """Take the next event into account."""
        if not isinstance(now, int | float) or not abs(now) < _MAX:  # NaN is not less, either
            return
        if self._before is not None and now > self._before and name != "run_resumed":
            self.seconds += now - self._before
        self._before = now


def _tokens(result: Mapping[str, Any] | None) -> int:
    usage = (result or {}).get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else []
    return sum(count for count in counts if isinstance(count, int) and 0 <= count < _MAX)


def task_text(messages: Iterable[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a task; its images and other things are named by their type."""
    parts: list[Any] = []
    for message in messages:
        content = message.get("content")
        parts += (
            content if isinstance(content, list) else [content if isinstance(content, str) else message.get("type")]
        )
    return "\n".join(part if isinstance(part, str) else "[image]" for part in parts if part)
