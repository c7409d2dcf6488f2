"""Files of tasks: JSONL and CSV. Bad rows are told apart from good ones, and read in bounded memory."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from autogen_codeact.batch.answer_checks import parse_json
from autogen_codeact.batch.errors import BatchTasksError
from autogen_codeact.batch.tasks import BadTask
from codeact_sandbox.types.formatting import format_count

MAX_ROW = 16 * 1024 * 1024
"""Bytes of one task."""
TOO_LONG = f"it is longer than {MAX_ROW // 2**20} MiB"
BOM = b"\xef\xbb\xbf"
KNOWN = ("id", "task", "files", "data", "expected", "check", "metadata")
JSON_COLUMNS = ("files", "metadata")
_OTHER_FILES = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xff\xfe", b"\xfe\xff")
"""How files begin that are compressed, spreadsheets, of Parquet or UTF-16."""


class FoundRow(NamedTuple):
    """A row that may be a task, with its place, and an id for it if it has none."""

    place: str
    name: str
    fields: Mapping[str, Any]


def read_path(path: Path) -> Iterator[FoundRow | BadTask]:
    """Yield the rows of a file."""
    try:
        with _open(path) as file:
            start = file.read(8192)
            form = _form(path, start)
            file.seek(len(BOM) if start.startswith(BOM) else 0)
            yield from _read_json_lines(path, file) if form == "jsonl" else _read_csv(path, file)
    except FileNotFoundError:
        raise BatchTasksError(f"There are no tasks at {path}: no such file.") from None
    except OSError as error:
        raise BatchTasksError(f"The tasks can't be read from {path}: {error.strerror or error}.") from error


def _open(path: Path) -> BinaryIO:
    """Open a file for reading; what is no regular file is refused, without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "folder" if stat.S_ISDIR(mode) else "pipe or a device"
        raise BatchTasksError(f"{path} is a {what}: write the tasks to a file first, one JSON object a line.")
    return os.fdopen(descriptor, "rb")


def _form(path: Path, start: bytes) -> str:
    """Return "jsonl" or "csv", by the name of the file, or else by how it begins."""
    if start.startswith(_OTHER_FILES) or start.count(0) > len(start) / 20:  # some are a bad row
        raise BatchTasksError(f"{path} is not a text file: tasks are JSONL or CSV, as UTF-8.")
    text = start.removeprefix(BOM).lstrip()
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if text.startswith(b"[") and suffix != ".jsonl":
        raise BatchTasksError(f"{path} is one JSON list: write one object a line (jq -c '.[]' FILE > tasks.jsonl).")
    if suffix in (".jsonl", ".ndjson", ".json") or text.startswith(b"{") or not text:
        return "jsonl"
    raise BatchTasksError(f"{path} is of an unknown form: name it *.jsonl or *.csv.")


class _Lines:
    """The lines of a file, none of which is held if it is too long."""

    def __init__(self, file: BinaryIO, number: int = 0) -> None:
        self.number = number
        """Of the last line, from 1."""
        self._file = file

    def read(self) -> bytes | None:
        """Return the next line, b"" at the end, or None for one that is too long."""
        line = self._file.readline(MAX_ROW + 1)
        self.number += bool(line)
        if len(line) <= MAX_ROW:
            return line
        while line and not line.endswith(b"\n"):
            line = self._file.readline(MAX_ROW)
        return None


def _read_json_lines(path: Path, file: BinaryIO) -> Iterator[FoundRow | BadTask]:
    lines = _Lines(file)
    while (line := lines.read()) != b"":
        place, name = f"{path.name}:{lines.number}", f"line-{lines.number}"
        if line is None:
            yield BadTask(name, place, TOO_LONG)
        elif line.strip():
            yield _parse_line(line, place, name)


def _parse_line(line: bytes, place: str, name: str) -> FoundRow | BadTask:
    try:
        line.decode()
        fields = parse_json(line.rstrip())
    except UnicodeDecodeError as error:
        return BadTask(name, place, f"it is not UTF-8 (byte {error.start + 1} of the line)")
    except ValueError as error:
        return BadTask(name, place, f"it is not JSON: {str(error).replace(' at line 1', ' at')}")
    if not isinstance(fields, dict):
        return BadTask(name, place, "it is not a JSON object")
    return FoundRow(place, name, fields)


class _Records:
    """The records of a CSV file. One that has no end is left after its first line."""

    def __init__(self, file: BinaryIO, delimiter: str) -> None:
        self._file = file
        self._lines = _Lines(file, 1)
        self._delimiter = delimiter
        self._unclosed = False
        self.first = 0
        """Line at which the last record begins."""
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))

    def read(self) -> list[str] | str | None:
        """Return the next record, what is wrong with it, or None at the end."""
        line = self._lines.read()
        self.first = self._lines.number
        if not line:
            return TOO_LONG if line is None else None
        after, self._unclosed = self._file.tell(), False
        try:
            record = next(csv.reader(self._rest(line), delimiter=self._delimiter))
        except csv.Error:  # the only one: lines and fields can't be too long
            return "it is not CSV: it has a carriage return that is not in quotes"
        if not self._unclosed:
            return record
        self._file.seek(after)
        self._lines.number = self.first
        return "a quote that begins here is not closed"

    def _rest(self, line: bytes) -> Iterator[str]:
        """Yield the lines of one record; the CSV reader takes as many as it has."""
        size = 0
        while line and size + len(line) <= MAX_ROW:
            size += len(line)
            yield line.decode("utf-8", "surrogateescape")
            line = self._file.readline(MAX_ROW + 1)
            self._lines.number += bool(line)
        self._unclosed = True


def _read_csv(path: Path, file: BinaryIO) -> Iterator[FoundRow | BadTask]:
    delimiter, header = _header(path, file)
    records = _Records(file, delimiter)
    while (record := records.read()) is not None:
        place, name = f"{path.name}:{records.first}", f"line-{records.first}"
        if isinstance(record, str):
            yield BadTask(name, place, record)
        elif any(record) and len(record) != len(header):
            reason = f"it has {format_count(len(record), 'column')}, and the header has {len(header)}"
            yield BadTask(name, place, reason)
        elif any(record):
            yield _parse_record(dict(zip(header, record, strict=True)), place, name)


def _header(path: Path, file: BinaryIO) -> tuple[str, list[str]]:
    line = file.readline(MAX_ROW).decode("utf-8", "replace")
    header: list[str] = []
    for delimiter in (",", ";", "\t"):
        header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
        if "id" in header and "task" in header:
            break
    else:
        raise BatchTasksError(f"{path} has no columns `id` and `task` in its first line.")
    double = sorted({name for name in header if header.count(name) > 1})
    if double:
        raise BatchTasksError(f"{path} has two columns with the name {double[0]!r}.")
    return delimiter, header


def _parse_record(record: dict[str, str], place: str, name: str) -> FoundRow | BadTask:
    fields: dict[str, Any] = {}
    for column, text in record.items():
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            return BadTask(name, place, f"column {column!r} is not UTF-8")
        if not text and column in KNOWN:
            continue
        is_json = column in JSON_COLUMNS or (column in ("data", "check") and text.lstrip()[:1] in ("{", "["))
        try:
            fields[column] = parse_json(text) if is_json else [text] if column == "data" else text
        except ValueError as error:
            return BadTask(name, place, f"column {column!r} is not JSON: {error}")
    return FoundRow(place, name, fields)
