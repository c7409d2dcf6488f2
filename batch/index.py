"""The index of `results.jsonl`: where the row of each task and repetition is. Its memory does not grow with the rows."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic_core import from_json

from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.rows import Outcome
from autogen_codeact.runs.budget import json_cost

MAX_LINE = 32 * 1024 * 1024
"""Bytes of a row; longer lines are left out. A row's metadata can have 16 MiB."""
MAX_COST = 64 * 1024 * 1024
"""Bytes of memory that a row may take."""
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE row (id, repeat, offset, outcome, passed, prompt, completion, log, PRIMARY KEY (id, repeat)) WITHOUT ROWID;
CREATE TABLE task (id PRIMARY KEY, place) WITHOUT ROWID;
"""


@dataclass
class RowCounts:
    """The rows that count, in numbers.

    Args:
        rows: How many there are.
        failed: Those that failed.
        invalid: Those whose task can't be used.
        checked: Those with a result of checks.
        passed: Those whose checks passed.
        prompt_tokens: Tokens of prompts in all rows.
        completion_tokens: Tokens of completions in all rows.
    """

    rows: int = 0
    failed: int = 0
    invalid: int = 0
    checked: int = 0
    passed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, by: int, outcome: str, passed: bool | None, prompt_tokens: int, completion_tokens: int) -> None:
        """Add a row (1), or take one away (-1)."""
        self.rows += by
        self.failed += by * (outcome == "failed")
        self.invalid += by * (outcome == "invalid")
        self.checked += by * (passed is not None)
        self.passed += by * bool(passed)
        self.prompt_tokens += by * prompt_tokens
        self.completion_tokens += by * completion_tokens


class RowIndex:
    """Finds rows; the last one of a task and repetition counts. Any thread may use it."""

    def __init__(self, path: Path, *, invalid: bool = True) -> None:
        # In a temporary file, of which nothing stays.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._lock = threading.RLock()
        self._places = 0
        self._database.executescript(_SCHEMA)
        self._database.execute("BEGIN")  # nothing is ever committed, which would take time
        self.counts = RowCounts()
        self.damaged = self.replaced = self.end = 0
        """Lines that are no rows; rows that do not count; and the end of the last whole line."""
        for offset, end, line in _lines(path):
            self.end = end
            try:
                row = _parse_row(line)
            except ValueError:
                self.damaged += 1
                continue
            if invalid or row["outcome"] != "invalid":
                self.put(row, offset)
            else:
                self.replaced += 1

    def put(self, row: Mapping[str, Any], offset: int) -> None:
        """Take a row into account, in place of an earlier one."""
        key = (row["id"], row.get("repeat", 1))
        counted = (
            row["outcome"],
            row.get("passed"),
            row.get("prompt_tokens", 0),
            row.get("completion_tokens", 0),
        )
        with self._lock:
            sql = "SELECT outcome, passed, prompt, completion FROM row WHERE id = ? AND repeat = ?"
            for before in self._execute(sql, *key):
                self.counts.add(-1, *before)
                self.replaced += 1
            self.counts.add(1, *counted)
            values = (*key, offset, *counted, row.get("log"))
            self._execute("INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)

    def find(self, task_id: str, repeat: int) -> tuple[int, str, str | None] | None:
        """Return offset, outcome and log of a row."""
        sql = "SELECT offset, outcome, log FROM row WHERE id = ? AND repeat = ?"
        return next(iter(self._execute(sql, task_id, repeat)), None)

    def logs(self, task_id: str) -> list[str | None]:
        """Return the logs of all rows of a task."""
        return [log for (log,) in self._execute("SELECT log FROM row WHERE id = ?", task_id)]

    def see(self, task_id: str) -> None:
        """Remember that a task is among the tasks, and in which place."""
        with self._lock:
            self._places += 1
            self._execute("INSERT OR IGNORE INTO task VALUES (?, ?)", task_id, self._places)

    def others(self, repeats: int) -> int:
        """Return how many rows are of tasks that were not seen, or of higher repetitions."""
        sql = "SELECT count(*) FROM row WHERE repeat > ? OR id NOT IN (SELECT id FROM task)"
        return int(self._execute(sql, repeats)[0][0])

    def unseen(self) -> int:
        """Return how many tasks have rows and were not seen."""
        sql = "SELECT count(DISTINCT id) FROM row WHERE id NOT IN (SELECT id FROM task)"
        return int(self._execute(sql)[0][0])

    def offsets(self, *, by_task: bool = False) -> list[int]:
        """Return where the rows are that count, in their order or in that of the tasks."""
        order = "task.id IS NULL, place, repeat, offset" if by_task else "offset"
        sql = f"SELECT offset FROM row LEFT JOIN task USING (id) ORDER BY {order}"  # noqa: S608 - no values
        return [offset for (offset,) in self._execute(sql)]

    def _execute(self, sql: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                return self._database.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise BatchFolderError(
                f"The rows can't be indexed in a temporary file ({error}): free some space there, or set SQLITE_TMPDIR to "
                "another folder, and run the same again: it goes on from here."
            ) from error

    def close(self) -> None:
        """Remove the index; repeated calls are harmless."""
        with self._lock:
            self._database.close()


def parse_json(line: bytes) -> Any:
    """Return the value of a line, if it takes little memory."""
    if json_cost(line, MAX_COST) > MAX_COST:
        raise ValueError("it would take too much memory")
    return from_json(line)


def _parse_row(line: bytes) -> dict[str, Any]:
    """Return a row as far as it is needed here: whole rows take long to check."""
    row = parse_json(line)
    if (
        isinstance(row, dict)
        and isinstance(row.get("id"), str)
        and row.get("outcome") in get_args(Outcome)
        and row.get("passed") in (True, False, None)
        and isinstance(row.get("log"), str | None)
        and all(type(row.get(name, 1)) is int for name in ("repeat", "prompt_tokens", "completion_tokens"))
        and all(abs(row.get(name, 1)) < 2**62 for name in ("repeat", "prompt_tokens", "completion_tokens"))
    ):
        return row
    raise ValueError("it is not a row")


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield begin, end and content of each whole line; the content of one that is too long is empty."""
    end = 0
    with open(path, "rb") as file:
        while line := file.readline(MAX_LINE):
            begin, end = end, end + len(line)
            while not line.endswith(b"\n"):
                if not (more := file.readline(MAX_LINE)):
                    return  # it is being written, or a killed process has left it
                end += len(more)
                line = b"\n" if more.endswith(b"\n") else more
            yield begin, end, line
