"""Reading the rows of a batch, also while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.index import RowIndex
from autogen_codeact.batch.rows import Row

RESULTS = "results.jsonl"


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

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were written; they are not all in memory."""
        try:
            index = RowIndex(self.path)
            self.damaged = index.damaged
            with open(self.path, "rb") as file:
                for offset in index.offsets():
                    file.seek(offset)
                    try:
                        yield Row.model_validate_json(file.readline())
                    except ValidationError:
                        self.damaged += 1
            index.close()
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
