"""Reading `results.jsonl`: the last row of each task and repetition counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.rows import Row
from autogen_codeact.runs.folder import json_cost, read_lines

RESULTS = "results.jsonl"
MAX_LINE = 32 * 1024 * 1024  # bytes of a row; longer lines are left out. A row's metadata can have 16 MiB
MAX_COST = 64 * 1024 * 1024  # bytes of memory that a row may take
Key = tuple[str, int]


class Known(NamedTuple):
    """What is kept of a row in memory: where it is, how its task ended, its log, and what it adds to the counts."""

    offset: int
    outcome: str
    log: str | None
    counted: dict[str, int]


class Results:
    """The rows of a batch, also while it runs.

    Args:
        folder: Folder of the batch.

    Raises:
        BatchFolderError: There are no results, or they can't be read.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / RESULTS
        self.by_key: dict[Key, Known] = {}
        self.counts = Counter[str]()
        """The rows that count, in numbers: rows, those of each outcome, checked, passed, and tokens."""
        self.damaged = self.replaced = self.end = 0
        """Lines that are no rows; rows that do not count; and the end of the last whole line."""
        if self.path.is_symlink() or not self.path.is_file():
            raise BatchFolderError(f"{folder} is not the folder of a batch: there is no {RESULTS}.")
        try:
            with open(self.path, "rb") as file:
                for line in read_lines(file, MAX_LINE):
                    if not line.cut_off:  # else it is being written, or a killed process has left it
                        self._take(line.data or b"", self.end)
                        self.end = line.end
        except OSError as error:
            raise BatchFolderError(f"{self.path} can't be read: {error.strerror or error}.") from error

    def _take(self, line: bytes, offset: int) -> None:
        row = _parse(line)
        if row is None:
            self.damaged += 1
        else:
            self.put(row, offset)

    def put(self, row: Row, offset: int) -> None:
        """Take a row into account, in place of an earlier one."""
        counted = {
            "rows": 1,
            row.outcome: 1,
            "checked": int(row.passed is not None),
            "passed": int(row.passed is True),
            "prompt_tokens": row.prompt_tokens,
            "completion_tokens": row.completion_tokens,
        }
        if (before := self.by_key.pop((row.id, row.repeat), None)) is not None:
            self.replaced += 1
            self.counts.subtract(before.counted)
        self.by_key[row.id, row.repeat] = Known(offset, row.outcome, row.log, counted)
        self.counts.update(counted)

    def row(self, key: Key) -> Row | None:
        """Return a row as it is in the file, or None if that was written anew meanwhile."""
        with open(self.path, "rb") as file:
            file.seek(self.by_key[key].offset)
            row = _parse(file.readline(MAX_LINE))
        return row if row is not None and (row.id, row.repeat) == key else None

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were written; they are not all in memory."""
        return (row for key in list(self.by_key) if (row := self.row(key)) is not None)


def _parse(line: bytes) -> Row | None:
    if json_cost(line, MAX_COST) > MAX_COST:
        return None
    try:
        return Row.model_validate_json(line)
    except ValueError:
        return None
