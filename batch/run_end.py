"""What the log of a run says about its end, for the row of a task."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.messages import load_message
from autogen_codeact.runs.reader import RawEvent, load_run
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.summary import RunTotals
from autogen_codeact.runs.writer import MAX_LINE

NOT_WRITTEN = "it could not be written"
USAGE = ("steps", "model_calls", "prompt_tokens", "completion_tokens")


@dataclass
class LogEnd:
    """What a log says about its run; `stopped`: why it ends before the run did; `last`: the message that is the result."""

    run: str | None = None
    usage: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(USAGE, 0))
    stopped: str | None = NOT_WRITTEN
    last: Any = None
    is_finished: bool = False


def has_begun(path: Path) -> bool:
    """Return whether there is a log in which something may have happened; remove one that has only begun.

    The first two events are the start of the run and its first state: nothing is done before both are on the disk.
    """
    try:
        with open(path / EVENTS, "rb") as file:
            if file.readline(MAX_LINE + 1).endswith(b"\n") and file.readline(MAX_LINE + 1).endswith(b"\n"):
                return True
    except FileNotFoundError:
        if not path.exists():
            return False
    shutil.rmtree(path)
    return False


def read_log(path: Path) -> LogEnd:
    """Read a log from its beginning to its end; one that can't be read was not written."""
    end, totals, last = LogEnd(), RunTotals(), None
    try:
        run = load_run(path)
        end.run = run.started.run
        for line in run.raw_events():
            totals.add(line, run)
            if isinstance(line, RawEvent) and line.name == "message":
                last = line
        counts = (totals.blocks, totals.model_calls, totals.prompt_tokens, totals.completion_tokens)
        end.usage = dict(zip(USAGE, counts, strict=True))
        end.stopped = None if totals.finished is not None else totals.stopped or NOT_WRITTEN
        end.is_finished = totals.finished is not None and totals.finished.outcome == "completed"
        if end.is_finished and last is not None:
            event: Any = run.parse(last)
            end.last = load_message(event.message)
    except (RunError, OSError):
        end.stopped = NOT_WRITTEN
    return end
