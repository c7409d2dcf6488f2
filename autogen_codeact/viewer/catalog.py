"""The runs of a folder with their summaries; a log is read again only if it has changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.reader import load_run
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.summary import summarize
from autogen_codeact.runs.text import bounded, count, model_name, seconds

MAX_RUNS = 100_000
_TASK_CHARS = 400
_SCAN_S = 1.0
_READ_S = 0.3  # seconds in which logs are read for one answer
Stamp = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, and inode of a log."""


RunRow = dict[str, Any]
"""A run in the list: id, name, task, agents, models, started, outcome (as in a header, or "unreadable"),
blocks (how many times code ran), tokens, duration_s, error and gaps."""


class Catalog:
    """The runs of a folder, or some runs.

    Args:
        runs: A folder with runs in it, the folder of one run, or folders of runs; a run's folder may not exist yet.
    """

    def __init__(self, runs: Path | Iterable[Path]) -> None:
        self.folder: Path | None = None
        """The folder with runs in it, or None for a fixed list."""
        self._fixed: dict[str, Path] = {}
        if isinstance(runs, Path) and not os.path.lexists(runs / EVENTS):
            self.folder = runs
        else:
            for each in [runs] if isinstance(runs, Path) else runs:
                self._fixed[self._free_name(each)] = each
        self._rows: dict[str, tuple[Stamp, RunRow]] = {}
        self._names: dict[str, Stamp] = {}
        self._again: dict[str, float] = {}  # monotonic time before which a running run is not read again
        self._lock = threading.Lock()
        self._next_scan = 0.0

    @property
    def single(self) -> str | None:
        """The name of the run if there can be one only, or None."""
        return next(iter(self._fixed)) if len(self._fixed) == 1 else None

    def locate(self, name: str) -> Path | None:
        """Return the folder of a run, or None if there is no run of this name. Symbolic links are none."""
        if self.folder is None:
            return self._fixed.get(name)
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            return None
        path = self.folder / name
        try:
            found = not path.is_symlink() and path.is_dir() and os.path.lexists(path / EVENTS)
        except (OSError, ValueError):
            return None
        return path if found else None

    def rows(self) -> tuple[list[RunRow], int, bool]:
        """Return the runs that have been read, the number of all, and whether some are not read yet. It reads files."""
        with self._lock:
            if time.monotonic() >= self._next_scan:
                self._scan()
            unread = [name for name, stamp in self._names.items() if self._is_old(name, stamp)]
            until = time.monotonic() + _READ_S
            while unread and time.monotonic() < until:
                self._read(unread.pop(0))
            return [row for _, row in self._rows.values()], len(self._names), bool(unread)

    def _free_name(self, path: Path) -> str:
        name = path.resolve().name or "run"
        return name if name not in self._fixed else f"{name}-{len(self._fixed) + 1}"

    def _scan(self) -> None:
        began = time.monotonic()
        self._names = dict(sorted(self._found(), key=lambda item: -item[1][1])[:MAX_RUNS])
        self._next_scan = time.monotonic() + max(_SCAN_S, 10 * (time.monotonic() - began))
        self._rows = {name: row for name, row in self._rows.items() if name in self._names}

    def _is_old(self, name: str, stamp: Stamp) -> bool:
        known = self._rows.get(name)
        if known is None or known[1]["outcome"] != "running":
            return known is None or known[0] != stamp
        # Also if its log is the same: nothing is written to it when a process is killed.
        return time.monotonic() >= self._again.get(name, 0.0)

    def _found(self) -> Iterable[tuple[str, Stamp]]:
        if self.folder is None:
            pairs = list(self._fixed.items())
        else:
            try:
                with os.scandir(self.folder) as entries:
                    pairs = [(e.name, self.folder / e.name) for e in entries if _is_folder(e)]
            except OSError:
                return
        for name, path in pairs:
            try:
                log = (path / EVENTS).lstat()
            except OSError:
                continue
            yield name, (log.st_size, log.st_mtime_ns, log.st_ino)

    def _read(self, name: str) -> None:
        began, path = time.monotonic(), self.locate(name)
        if path is not None:
            self._rows[name] = self._names[name], summary_row(name, path)
        self._again[name] = time.monotonic() + 10 * (time.monotonic() - began)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        entry.name.encode()  # what is no UTF-8 can't be in an address
        return entry.is_dir(follow_symlinks=False)
    except (OSError, UnicodeEncodeError):
        return False


def summary_row(name: str, path: Path) -> RunRow:
    """Return the row of a run, also of one whose log can't be read."""
    try:
        run = load_run(path)
        summary = summarize(run)
    except RunError as error:
        row: RunRow = dict.fromkeys(("blocks", "tokens", "duration_s", "gaps"), 0) | {"agents": [], "models": []}
        row |= {"id": name, "name": bounded(name, 200), "task": "", "started": "", "outcome": "unreadable"}
        return row | {"error": bounded(str(error), _TASK_CHARS)}
    agents = run.started.agents[:100]
    return {
        "id": name,
        "name": bounded(summary.name, 200),
        "task": bounded(summary.task, _TASK_CHARS),
        "agents": [bounded(each.name, 200) for each in agents],
        "models": sorted({model for each in agents if each.model is not None and (model := model_name(each.model))}),
        "started": summary.started.isoformat(),
        "outcome": summary.outcome,
        "blocks": count(summary.steps),
        "tokens": count(summary.tokens),
        "duration_s": seconds(summary.seconds),
        "error": bounded(summary.error, _TASK_CHARS) if summary.error is not None else None,
        "gaps": count(summary.gaps),
    }


def chosen(rows: list[RunRow], query: dict[str, str]) -> list[RunRow]:
    """Return the runs that fit a query, the latest first."""
    words, outcome = query.get("search", "").casefold().split(), query.get("outcome")
    found = [row for row in rows if (not outcome or row["outcome"] == outcome) and (not words or _has(row, words))]
    return sorted(found, key=lambda row: (row["started"], row["id"]), reverse=True)


def _has(row: RunRow, words: list[str]) -> bool:
    texts = [row["id"], row["name"], row["task"], row["error"] or "", *row["agents"], *row["models"]]
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)
