"""Reading the rows of a batch, also while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.lines import MAX_LINE, RESULTS, parse_json, row_key
from autogen_codeact.batch.rows import Row


class Results:
    """The rows of a batch: one for each task and repetition, the last one that was written.

    Args:
        folder: Folder of the batch, or its `results.jsonl`.

    Raises:
        BatchFolderError: There are no results.
    """

    def __init__(self, folder: Path | str) -> None:
        folder = Path(folder)
        self.path = folder if folder.name == RESULTS else folder / RESULTS
        self.damaged = 0
        """Lines that are no rows, known once all rows have been read."""
        if not self.path.is_file():
            raise BatchFolderError(f"{folder} is not the folder of a batch: there is no {RESULTS}.")

    @property
    def folder(self) -> Path:
        """Folder of the batch."""
        return self.path.parent

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were written; they are not all in memory."""
        last: dict[int, int] = {}
        self.damaged = 0
        for number, line in self._lines():
            if (key := _key(line)) is not None:
                last[key] = number
        for number, line in self._lines():
            key = _key(line)
            if key is None:
                self.damaged += 1
            elif last.get(key) == number:
                try:
                    yield Row.model_validate_json(line)
                except ValidationError:
                    self.damaged += 1

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            with open(self.path, "rb") as file:
                while line := file.readline(MAX_LINE + 1):
                    number += 1
                    while line and not line.endswith(b"\n") and len(line) > MAX_LINE:
                        line = file.readline(MAX_LINE + 1)
                    if line.endswith(b"\n"):  # else it is being written
                        yield number, line
        except OSError as error:
            raise BatchFolderError(f"{self.path} can't be read: {error.strerror or error}.") from error


def load_rows(folder: Path | str) -> list[Row]:
    """Return the rows of a batch: one for each task and repetition.

    Args:
        folder: Folder of the batch.

    Raises:
        BatchFolderError: There are no results.
    """
    return list(Results(folder))


def _key(line: bytes) -> int | None:
    try:
        row = parse_json(line)
        return row_key(row["id"], row.get("repeat", 1))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
