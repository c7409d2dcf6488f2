"""The rows of a batch as its page shows them, beside those of another batch of the same tasks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from autogen_codeact.batch.index import RESULTS, Results
from autogen_codeact.batch.rows import Row
from autogen_codeact.viewer.text import bounded, count, seconds, shortened

MAX_ROWS = 100_000
_SEARCHED_CHARS = 1_000
_TEXT_CHARS = 20_000
_CHANGED = "changed"


def has_results(folder: Path) -> bool:
    """Return whether a folder is that of a batch."""
    results = folder / RESULTS
    return results.is_file() and not results.is_symlink()


class _Known(NamedTuple):
    """What is kept of a row, to find it."""

    key: tuple[str, int]
    offset: int
    verdict: str
    text: str


class BatchTable:
    """The rows of a batch; they are read again when there are new ones. Its methods block for the disk.

    Args:
        folder: Folder of the batch.
        other: Folder of a batch to compare it with. Default: none.
    """

    def __init__(self, folder: Path, other: Path | None = None) -> None:
        self._tables = [_Table(each) for each in (folder, other) if each is not None]
        self._names = [bounded(each.resolve().name, 200) for each in (folder, other) if each is not None]
        self._lock = threading.Lock()

    def page(self, query: dict[str, str], offset: int, limit: int) -> dict[str, Any]:
        """Return the rows that fit a query, and how many there are with each verdict."""
        with self._lock:
            for table in self._tables:
                table.read()
        table, others = self._tables[0], self._tables[1].by_key if len(self._tables) > 1 else {}
        words, verdict = query.get("search", "").casefold().split(), query.get("outcome")
        found = [
            each
            for each in table.by_key.values()
            if _fits(each, others.get(each.key), verdict) and all(word in each.text for word in words)
        ]
        rows = []
        for each in found[offset : offset + limit]:
            row = _document(table.row(each), each.verdict)
            if (known := others.get(each.key)) is not None:
                row["other"] = _document(self._tables[1].row(known), known.verdict)
            rows.append(row)
        return {
            "names": self._names,
            "rows": rows,
            "total": len(table.by_key),
            "matched": len(found),
            "counts": [Counter(each.verdict for each in one.by_key.values()) for one in self._tables],
        }


class _Table:
    """The rows of one batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.by_key: dict[tuple[str, int], _Known] = {}
        self._stamp: tuple[int, ...] = ()
        self._next = 0.0

    def read(self) -> None:
        """Read the rows if there are new ones."""
        found = (self._folder / RESULTS).stat()
        stamp = (found.st_size, found.st_mtime_ns, found.st_ino)
        began = time.monotonic()
        if stamp == self._stamp or began < self._next:
            return
        with closing(Results(self._folder)) as results:
            by_key: dict[tuple[str, int], _Known] = {}
            for offset, row in islice(results.with_offsets(), MAX_ROWS):
                text = f"{row.id}\n{row.task[:400]}\n{row.error_class}\n{(row.error or '')[:200]}\n{(row.answer or '')[:200]}"
                key = (row.id, row.repeat)
                by_key[key] = _Known(key, offset, _verdict(row), text.casefold()[:_SEARCHED_CHARS])
        self.by_key, self._stamp = by_key, stamp
        self._next = time.monotonic() + 10 * (time.monotonic() - began)

    def row(self, known: _Known) -> Row:
        """Return a row as a whole; without its content if the file was written anew meanwhile."""
        with open(self._folder / RESULTS, "rb") as file:
            file.seek(known.offset)
            try:
                return Row.model_validate_json(file.readline())
            except ValueError:
                self._stamp = ()
                return Row(id=known.key[0], repeat=known.key[1], outcome="invalid")


def _verdict(row: Row) -> str:
    """Return what became of a task, in a word."""
    if row.outcome == "completed" and row.passed is not None:
        return "passed" if row.passed else "not passed"
    return row.outcome


def _fits(row: _Known, other: _Known | None, verdict: str | None) -> bool:
    if verdict == _CHANGED:
        return other is not None and other.verdict != row.verdict
    return not verdict or row.verdict == verdict


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
        "failures": [bounded(f"{each.error_class}: {each.error}", 1_000) for each in row.failures[-20:]],
        "blocks": count(row.steps),
        "tokens": count(row.prompt_tokens) + count(row.completion_tokens),
        "duration_s": seconds(row.seconds),
        "engine": bounded(row.engine, 200) if row.engine is not None else None,
    }
