"""What the log of a run says about its end, for the row of a task."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from autogen_codeact.runs.messages import load_message
from autogen_codeact.runs.reader import RawEvent, load_run
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.writer import MAX_LINE

LAST_BYTES = 256 * 1024
NOT_WRITTEN = "it could not be written"
USAGE = ("steps", "model_calls", "prompt_tokens", "completion_tokens")


@dataclass
class LogEnd:
    """What a log says about its run; `stopped`: why it ends before the run did; `last`: the message that is the result."""

    run: str | None = None
    usage: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(USAGE, 0))
    stopped: str | None = None
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


def read_whole(path: Path) -> LogEnd:
    """Read a log from its beginning to its end."""
    run, end, last = load_run(path), LogEnd(), None
    end.run = run.started.run
    for raw in run.raw_events():
        if not isinstance(raw, RawEvent):
            continue
        match raw.name:
            case "block_started":
                end.usage["steps"] += 1
            case "model_call_finished":
                usage = ((raw.data.get("result") or {}).get("usage")) or {}
                end.usage["model_calls"] += raw.data.get("result") is not None
                for name in ("prompt_tokens", "completion_tokens"):
                    end.usage[name] += int(usage.get(name) or 0)
            case "message":
                last = raw
            case "run_resumed":
                end.is_finished = False
            case "run_finished":
                end.is_finished = raw.data.get("outcome") == "completed"
            case "log_stopped":
                end.stopped = str(raw.data.get("reason"))
    if end.is_finished and last is not None:
        event: Any = run.parse(last)
        end.last = load_message(event.message)
    return end


def read_end(path: Path, before: LogEnd | None = None) -> LogEnd:
    """Read the first and the last event of a log."""
    end = LogEnd()
    try:
        with open(path / EVENTS, "rb") as file:
            end.run = before.run if before is not None else from_json(file.readline(MAX_LINE)).get("run")
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LAST_BYTES))
            lines = file.read(LAST_BYTES).rstrip(b"\n").rsplit(b"\n", 1)
        last = from_json(lines[-1])
    except (OSError, ValueError, AttributeError):
        end.stopped = NOT_WRITTEN
        return end
    if last.get("type") != "run_finished":
        end.stopped = str(last.get("reason") or NOT_WRITTEN)
    else:
        counts = {**last, "steps": last.get("blocks")}
        for name in USAGE:
            end.usage[name] = int(counts.get(name) or 0) + (before.usage[name] if before is not None else 0)
    return end
