"""The rows of a batch as its page shows them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from autogen_codeact.batch.results import RESULTS, Key, Results, Row
from autogen_codeact.runs.text import bounded, count, seconds, shortened

_SEARCHED_CHARS = 1_000
_TEXT_CHARS = 20_000


def has_results(folder: Path) -> bool:
    """Return whether a folder is that of a batch."""
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
        """Read the rows if there are new ones."""
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
