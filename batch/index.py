"""Reading `results.jsonl`: where the row of each task and repetition is. The memory for it does not grow with the rows."""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.rows import Outcome, Row
from autogen_codeact.runs.folder import json_cost, read_lines

RESULTS = "results.jsonl"
MAX_LINE = 32 * 1024 * 1024  # bytes of a row; longer lines are left out. A row's metadata can have 16 MiB
MAX_COST = 64 * 1024 * 1024  # bytes of memory that a row may take
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE row (id, repeat, offset, outcome, passed, prompt, completion, log, PRIMARY KEY (id, repeat)) WITHOUT ROWID;
CREATE TABLE task (id PRIMARY KEY, place) WITHOUT ROWID;
BEGIN;
"""
_COUNTS = """
SELECT count(*), total(outcome = 'failed'), total(outcome = 'waiting'), total(outcome = 'invalid'),
    count(passed), total(passed), total(prompt), total(completion) FROM row
"""
_Number = Annotated[int, Field(gt=-(2**62), lt=2**62)]


class _Entry(BaseModel):
    """A row as far as it is needed here: whole rows take long to check."""

    model_config = ConfigDict(strict=True)

    id: str
    repeat: _Number = 1
    outcome: Outcome
    passed: bool | None = None
    prompt_tokens: _Number = 0
    completion_tokens: _Number = 0
    log: str | None = None


@dataclass
class RowCounts:
    """The rows that count, in numbers."""

    rows: int = 0
    failed: int = 0
    waiting: int = 0
    invalid: int = 0
    checked: int = 0
    passed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class RowIndex:
    """Finds rows; the last one of a task and repetition counts. Any thread may use it."""

    def __init__(self, path: Path, *, invalid: bool = True) -> None:
        self.path = path
        self._counts: RowCounts | None = None
        self.damaged = self.replaced = self.end = 0
        """Lines that are no rows; rows that do not count; and the end of the last whole line."""
        # In a temporary file, of which nothing stays, and in one transaction that is never committed: that would take time.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._lock = threading.Lock()
        self._places = 0
        try:
            with self._in_use() as database:
                database.executescript(_SCHEMA)
            with open(path, "rb") as file:
                for line in read_lines(file, MAX_LINE):
                    if not line.cut_off:  # else it is being written, or a killed process has left it
                        self._take(line.data or b"", self.end, invalid)
                        self.end = line.end
        except BaseException:
            self.close()
            raise

    def _take(self, line: bytes, offset: int, invalid: bool) -> None:
        try:
            _check_cost(line)
            row = _Entry.model_validate_json(line)
        except ValueError:
            self.damaged += 1
            return
        if invalid or row.outcome != "invalid":
            self.put(row, offset)
        else:
            self.replaced += 1

    @contextmanager
    def _in_use(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._database
            except sqlite3.Error as error:
                raise BatchFolderError(
                    f"the index of {self.path} can't be kept in the folder for temporary files ({error}): free some space there, "
                    "or set TMPDIR to another folder, and run the same again."
                ) from error

    def put(self, row: _Entry | Row, offset: int) -> None:
        """Take a row into account, in place of an earlier one."""
        values = row.id, row.repeat, offset, row.outcome, row.passed, row.prompt_tokens, row.completion_tokens, row.log
        with self._in_use() as database:
            self._counts = None
            known = database.execute("SELECT 1 FROM row WHERE id = ? AND repeat = ?", values[:2]).fetchone()
            self.replaced += known is not None
            database.execute("INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    @property
    def counts(self) -> RowCounts:
        """The rows that count, in numbers."""
        with self._in_use() as database:
            if self._counts is None:
                self._counts = RowCounts(*map(int, database.execute(_COUNTS).fetchone()))
            return self._counts

    def find(self, task_id: str, repeat: int) -> tuple[int, str, str | None] | None:
        """Return offset, outcome and log of a row."""
        sql = "SELECT offset, outcome, log FROM row WHERE id = ? AND repeat = ?"
        return next(iter(self._select(sql, task_id, repeat)), None)

    def logs(self, task_id: str) -> list[str | None]:
        """Return the logs of all rows of a task."""
        return [log for (log,) in self._select("SELECT log FROM row WHERE id = ?", task_id)]

    def see(self, task_id: str) -> None:
        """Remember that a task is among the tasks, and in which place."""
        with self._in_use() as database:
            self._places += 1
            database.execute("INSERT OR IGNORE INTO task VALUES (?, ?)", (task_id, self._places))

    def others(self, repeats: int) -> int:
        """Return how many rows are of tasks that were not seen, or of higher repetitions."""
        sql = "SELECT count(*) FROM row WHERE repeat > ? OR id NOT IN (SELECT id FROM task)"
        return int(self._select(sql, repeats)[0][0])

    def tasks(self) -> int:
        """Return how many tasks have a row."""
        return int(self._select("SELECT count(DISTINCT id) FROM row")[0][0])

    def offsets(self, *, by_task: bool = False) -> array[int]:
        """Return where the rows are that count, in their order or in that of the tasks."""
        order = "task.id IS NULL, place, repeat, offset" if by_task else "offset"
        sql = f"SELECT offset FROM row LEFT JOIN task USING (id) ORDER BY {order}"  # noqa: S608 - no values
        with self._in_use() as database:
            return array("q", (offset for (offset,) in database.execute(sql)))

    def _select(self, sql: str, *values: Any) -> list[Any]:
        with self._in_use() as database:
            return database.execute(sql, values).fetchall()

    def close(self) -> None:
        """Remove the index; repeated calls are harmless."""
        with suppress(BatchFolderError):
            _ = self.counts  # they stay known
        with self._lock:
            self._database.close()


class Results(RowIndex):
    """The rows of a batch, also while it runs: one for each task and repetition, the last one that was written."""

    def __init__(self, folder: Path | str) -> None:
        path = Path(folder)
        path = path if path.name == RESULTS else path / RESULTS
        if not path.is_file():
            raise BatchFolderError(f"{folder} is not the folder of a batch: there is no {RESULTS}.")
        with _readable(path):
            super().__init__(path)

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were written; they are not all in memory."""
        return (row for _, row in self.with_offsets())

    def with_offsets(self) -> Iterator[tuple[int, Row]]:
        """Yield where each row is, and the row."""
        with _readable(self.path), open(self.path, "rb") as file:
            for offset in self.offsets():
                file.seek(offset)
                try:
                    row = Row.model_validate_json(file.readline())
                except ValidationError:
                    self.damaged += 1
                else:
                    yield offset, row


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BatchFolderError(f"{path} can't be read: {error.strerror or error}.") from error


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text, if it takes little memory."""
    _check_cost(data)
    return from_json(data)


def _check_cost(data: bytes) -> None:
    if json_cost(data, MAX_COST) > MAX_COST:
        raise ValueError("it would take too much memory")
