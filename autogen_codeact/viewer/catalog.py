"""The lists that the viewer shows: the runs of a folder, and the rows of a batch; files are read again if they have changed."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from autogen_codeact.batch.results import RESULTS, Key, Results, Row
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.reader import load_run
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.summary import summarize
from autogen_codeact.runs.text import bounded, count, model_name, seconds, shortened

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


_SEARCHED_CHARS = 1_000
_TEXT_CHARS = 20_000


def has_results(folder: Path) -> bool:
    results = folder / RESULTS
    return results.is_file() and not results.is_symlink()


class _Known(NamedTuple):
    """What is kept of a row, to find it."""

    key: Key
    verdict: str
    text: str


class BatchTable:
    """The rows of a batch; they are read again when there are new ones. Its methods block for the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._results: Results
        self._known: list[_Known] = []
        self._stamp: tuple[int, ...] = ()
        self._next = 0.0

    def page(self, query: dict[str, str], offset: int, limit: int) -> dict[str, Any]:
        """Return the rows that fit a query, and how many there are with each verdict."""
        with self._lock:
            self._read()
            results, known = self._results, self._known
        words, verdict = query.get("search", "").casefold().split(), query.get("outcome")
        found = [
            each
            for each in known
            if (not verdict or each.verdict == verdict) and all(word in each.text for word in words)
        ]
        rows = [(each, results.row(each.key)) for each in found[offset : offset + limit]]
        return {
            "name": bounded(self._folder.resolve().name, 200),
            # A row that was written anew meanwhile is shown without its content.
            "rows": [
                _document(row or Row(id=each.key[0], repeat=each.key[1], outcome="invalid"), each.verdict)
                for each, row in rows
            ],
            "total": len(known),
            "matched": len(found),
            "counts": Counter(each.verdict for each in known),
        }

    def _read(self) -> None:
        found = (self._folder / RESULTS).stat()
        stamp = (found.st_size, found.st_mtime_ns, found.st_ino)
        began = time.monotonic()
        if stamp == self._stamp or began < self._next:
            return
        self._results = Results(self._folder)
        self._known = [_known(row) for row in self._results]
        self._stamp = stamp
        self._next = time.monotonic() + 10 * (time.monotonic() - began)


def _known(row: Row) -> _Known:
    text = f"{row.id}\n{row.task[:400]}\n{row.error_class}\n{(row.error or '')[:200]}\n{(row.answer or '')[:200]}"
    return _Known((row.id, row.repeat), _verdict(row), text.casefold()[:_SEARCHED_CHARS])


def _verdict(row: Row) -> str:
    """Return what became of a task, in a word."""
    if row.outcome == "completed" and row.passed is not None:
        return "passed" if row.passed else "not passed"
    return row.outcome


def _document(row: Row, verdict: str) -> dict[str, Any]:
    error = f"{row.error_class}: {row.error}" if row.error_class is not None else row.error
    answer, size = shortened(row.answer, _TEXT_CHARS) if row.answer is not None else (None, None)
    return {
        "id": bounded(row.id, 200),
        "repeat": count(row.repeat),
        "run": PurePosixPath(row.log).name if row.log is not None and row.run is not None else None,
        "verdict": verdict,
        "task": bounded(row.task, 4_000),
        "expected": bounded(row.expected) if row.expected is not None else None,
        "answer": answer,
        "answer_bytes": size,
        "checks": [bounded(each.detail, 1_000) for each in row.checks if each.detail and each.passed is not True][:20],
        "error": bounded(error) if error is not None else None,
        "attempts": count(row.attempts),
        "blocks": count(row.steps),
        "tokens": count(row.prompt_tokens) + count(row.completion_tokens),
        "duration_s": seconds(row.seconds),
        "node": bounded(row.node, 200) if row.node is not None else None,
    }
