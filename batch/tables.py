"""The rows of a batch as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import AwareDatetime
from pydantic_core import to_json

from autogen_codeact.batch.errors import BatchError, BatchFolderError
from autogen_codeact.batch.results import Results
from autogen_codeact.batch.rows import Row
from autogen_codeact.runs.atomic_file import atomic_binary_file

PARQUET = "results.parquet"
MISSING = "Parquet files need the extra `parquet`: pip install 'autogen-codeact[parquet]'"
ROWS_AT_ONCE = 2000
BYTES_AT_ONCE = 32 * 1024 * 1024


def require_parquet() -> Any:
    """Return pyarrow.

    Raises:
        BatchError: It is not installed; the message says how to install it.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise BatchError(MISSING) from None


def write_parquet(folder: Path | str) -> Path:
    """Write the rows of a batch into `results.parquet` in its folder. It blocks; rows are not all in memory.

    The columns are the fields of a row; `metadata` is JSON text, because its types may differ from row to row.

    Args:
        folder: Folder of the batch.

    Returns:
        Path of the file, which was replaced as a whole.

    Raises:
        BatchError: pyarrow is not installed.
        BatchFolderError: There are no results, or the file can't be written.
    """
    arrow = require_parquet()
    results = Results(folder)
    schema = _schema(arrow)
    target = results.folder / PARQUET
    try:
        with (
            atomic_binary_file(target, private=True) as file,
            arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for rows in _groups(results):
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    except OSError as error:
        raise BatchFolderError(f"{target} can't be written: {error.strerror or error}.") from error
    return target


def _groups(rows: Iterable[Row]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows in groups of bounded size."""
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        metadata = to_json(row.metadata)
        group.append({**row.model_dump(), "metadata": metadata.decode()})
        size += len(metadata) + len(row.answer or "") + len(row.error or "") + 500
        if len(group) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _schema(arrow: Any) -> Any:
    return arrow.schema([(name, _column(arrow, field.annotation)) for name, field in Row.model_fields.items()])


def _column(arrow: Any, annotation: Any) -> Any:
    """Return the type of a column: texts for everything that is not a number, a time, or a list of models."""
    kinds = {each for each in get_args(annotation) if each is not type(None)} or {annotation}
    if get_origin(annotation) is list:
        (model,) = kinds
        fields = [(name, _column(arrow, field.annotation)) for name, field in model.model_fields.items()]
        return arrow.list_(arrow.struct(fields))
    if len(kinds) > 1:
        return arrow.string()
    times = arrow.timestamp("us", tz="UTC")
    types = {bool: arrow.bool_(), int: arrow.int64(), float: arrow.float64(), datetime: times, AwareDatetime: times}
    return types.get(kinds.pop(), arrow.string())
