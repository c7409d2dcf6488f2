"""Files of tasks: JSONL, CSV, and folders of texts. Bad rows are told apart from good ones, and read in bounded memory."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from autogen_codeact.batch.answer_checks import parse_json
from autogen_codeact.batch.errors import BatchTasksError
from autogen_codeact.sandbox.types.formatting import format_count

MAX_ROW = 16 * 1024 * 1024
"""Bytes of one task."""
SKIPPED_AT_ONCE = 4 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
KNOWN = ("id", "task", "files", "data", "expected", "check", "metadata")
JSON_COLUMNS = ("files", "metadata")
_OTHER_FILES = {
    b"\x1f\x8b": "compressed with gzip: unpack it first (gunzip)",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet: unpack it, or save it as CSV",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it first",
    b"PAR1": "a Parquet file: write it as JSONL first (`pandas.read_parquet(…).to_json(…, orient='records', lines=True)`)",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
}


@dataclass(frozen=True)
class FoundRow:
    """A row that may be a task.

    Args:
        place: Where it is, for messages.
        name: An id for it, if it has none.
        fields: Its fields, or None if it is bad.
        reason: Why it is bad.
        base: Folder to which its paths are relative. Default: that of the source.
    """

    place: str
    name: str
    fields: Mapping[str, Any] | None = None
    reason: str = ""
    base: Path | None = None


Rows = Iterator[FoundRow | None]
"""None: nothing yet; it gives the caller a chance to stop."""


def read_path(path: Path) -> Rows:
    """Yield the rows of a file or of a folder.

    Args:
        path: A JSONL or CSV file, or a folder.

    Raises:
        BatchTasksError: It can't be read at all.
    """
    try:
        if path.is_dir():
            yield from _read_folder(path)
            return
        with open_regular(path) as file:
            start = file.read(8192)
            form = _form(path, start)
            file.seek(len(BOM) if start.startswith(BOM) else 0)
            yield from _read_json_lines(path, file) if form == "jsonl" else _read_csv(path, file)
    except FileNotFoundError:
        raise BatchTasksError(f"There are no tasks at {path}: no such file or folder.") from None
    except OSError as error:
        raise BatchTasksError(f"The tasks can't be read from {path}: {error.strerror or error}.") from error


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a pipe or a device is refused, without waiting for it.

    Args:
        path: The file.

    Raises:
        BatchTasksError: It is not a regular file.
        OSError: It can't be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BatchTasksError(f"{path} is a pipe or a device: write the tasks to a file first.")
    return os.fdopen(descriptor, "rb")


def _form(path: Path, start: bytes) -> str:
    """Return "jsonl" or "csv", by the name of the file, or else by how it begins."""
    for magic, what in _OTHER_FILES.items():
        if start.startswith(magic):
            raise BatchTasksError(f"{path} is {what}.")
    if start.count(0) > len(start) / 20:  # some are a bad row
        raise BatchTasksError(f"{path} is not a text file: tasks are JSONL or CSV, as UTF-8.")
    text = start.removeprefix(BOM).lstrip()
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if text.startswith(b"[") and suffix != ".jsonl":
        raise BatchTasksError(f"{path} is one JSON list: write one object a line (jq -c '.[]' FILE > tasks.jsonl).")
    if suffix in (".jsonl", ".ndjson", ".json") or text.startswith(b"{") or not text:
        return "jsonl"
    raise BatchTasksError(f"{path} is of an unknown form: name it *.jsonl or *.csv, or give a folder of *.md or *.txt.")


class _Lines:
    """The lines of a file, none of which is held if it is too long.

    Args:
        file: The file, at the beginning of a line.
        number: How many lines are before it.
    """

    def __init__(self, file: BinaryIO, number: int = 0) -> None:
        self.number = number
        """Of the last line, from 1."""
        self._file = file

    def read(self) -> Generator[None, None, bytes | None]:
        """Return the next line, b"" at the end, or None for one that is too long."""
        line = self._file.readline(MAX_ROW + 1)
        self.number += bool(line)
        if len(line) <= MAX_ROW:
            return line
        while line and not line.endswith(b"\n"):
            line = self._file.readline(SKIPPED_AT_ONCE)
            yield
        return None


TOO_LONG = f"it is longer than {MAX_ROW // 2**20} MiB"


def _read_json_lines(path: Path, file: BinaryIO) -> Rows:
    lines = _Lines(file)
    while (line := (yield from lines.read())) != b"":
        place, name = f"{path.name}:{lines.number}", f"line-{lines.number}"
        if line is None:
            yield FoundRow(place, name, reason=TOO_LONG)
        elif not line.strip():
            yield None
        else:
            yield _parse_line(line, place, name)


def _parse_line(line: bytes, place: str, name: str) -> FoundRow:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return FoundRow(place, name, reason=f"it is not UTF-8 (byte {error.start + 1} of the line)")
    try:
        fields = parse_json(line.rstrip())
    except ValueError as error:
        return FoundRow(place, name, reason=f"it is not JSON: {str(error).replace(' at line 1', ' at')}")
    if not isinstance(fields, dict):
        return FoundRow(place, name, reason="it is not a JSON object")
    return FoundRow(place, name, fields)


# CSV


class _Records:
    """The records of a CSV file. One that has no end is left after its first line.

    Args:
        file: The file, at the beginning of its second line.
        delimiter: Between columns.
    """

    def __init__(self, file: BinaryIO, delimiter: str) -> None:
        self._file = file
        self._lines = _Lines(file, 1)
        self._delimiter = delimiter
        self._unclosed = False
        self.first = 0
        """Line at which the last record begins."""
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))

    def read(self) -> Generator[None, None, list[str] | str | None]:
        """Return the next record, what is wrong with it, or None at the end."""
        line = yield from self._lines.read()
        self.first = self._lines.number
        if line is None:
            return TOO_LONG
        if not line:
            return None
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
        while line:
            size += len(line)
            yield line.decode("utf-8", "surrogateescape")
            line = self._file.readline(MAX_ROW + 1)
            self._lines.number += bool(line)
            if size + len(line) > MAX_ROW:
                break
        self._unclosed = True


def _read_csv(path: Path, file: BinaryIO) -> Rows:
    delimiter, header = _header(path, file)
    records = _Records(file, delimiter)
    while (record := (yield from records.read())) is not None:
        place, name = f"{path.name}:{records.first}", f"line-{records.first}"
        if isinstance(record, str):
            yield FoundRow(place, name, reason=record)
        elif not any(record):
            yield None
        elif len(record) != len(header):
            reason = f"it has {format_count(len(record), 'column')}, and the header has {len(header)}"
            yield FoundRow(place, name, reason=reason)
        else:
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


def _parse_record(record: dict[str, str], place: str, name: str) -> FoundRow:
    fields: dict[str, Any] = {}
    for column, text in record.items():
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            return FoundRow(place, name, reason=f"column {column!r} is not UTF-8")
        if not text and column in KNOWN:
            continue
        is_json = column in JSON_COLUMNS or (column in ("data", "check") and text.lstrip()[:1] in ("{", "["))
        try:
            fields[column] = parse_json(text) if is_json else [text] if column == "data" else text
        except ValueError as error:
            return FoundRow(place, name, reason=f"column {column!r} is not JSON: {error}")
    return FoundRow(place, name, fields)


# Folders


FIELDS, EXPECTED = ".json", ".expected.txt"
"""Ends of the names of files beside a task: its other fields, and the right answer."""


def _read_folder(path: Path) -> Rows:
    path = path.absolute()
    names = {each.name for each in os.scandir(path) if not each.name.startswith(".")}
    for name in sorted(names):
        entry, place = path / name, _readable(f"{path.name}/{name}")
        if entry.is_dir():
            yield _read_sub_folder(entry, place)
        elif entry.suffix in (".md", ".txt") and not _is_expected(name, names):
            beside = (path / f"{entry.stem}{FIELDS}", path / f"{entry.stem}{EXPECTED}")
            yield _read_task(entry.stem, place, entry, beside)
        else:
            yield None


def _is_expected(name: str, names: set[str]) -> bool:
    """Return whether a file has the answer of the task beside it, and is none itself."""
    task = name.removesuffix(EXPECTED)
    return task != name and (f"{task}.md" in names or f"{task}.txt" in names)


def _read_sub_folder(folder: Path, place: str) -> FoundRow | None:
    text = next((folder / name for name in ("task.md", "task.txt") if (folder / name).exists()), None)
    fields, expected = folder / f"task{FIELDS}", folder / "expected.txt"
    if text is None and not fields.exists():
        return None
    others = sorted(each for each in folder.iterdir() if each.name[:1] != "." and each not in (text, fields, expected))
    return _read_task(folder.name, place, text, (fields, expected), {each.name: str(each) for each in others})


def _read_task(
    name: str, place: str, text: Path | None, beside: tuple[Path, Path], files: Mapping[str, str] | None = None
) -> FoundRow:
    """Put a task together from its files, of which all but one may be missing."""
    fields, expected = beside
    try:
        found = _fields(fields) if fields.exists() else {}
        _put(found, "task", text, fields)
        _put(found, "expected", expected if expected.exists() else None, fields)
    except ValueError as error:
        return FoundRow(place, _readable(name), reason=str(error))
    return FoundRow(place, _readable(name), {"files": files, **found, "id": name}, base=fields.parent)


def _put(found: dict[str, Any], field: str, file: Path | None, fields: Path) -> None:
    """Put the text of a file into a field, which another file must not have set."""
    if file is None:
        return
    if field in found:
        raise ValueError(f"it has `{field}` in {file.name} and in {fields.name}")
    text = _text(file)
    found[field] = text if field == "task" else text.strip("\r\n")


def _fields(path: Path) -> dict[str, Any]:
    try:
        fields = parse_json(_text(path))
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from None
    if isinstance(fields, dict) and "id" not in fields:
        return fields
    reason = "has an `id`: leave it out, the name of the task is that of its file or folder"
    raise ValueError(f"{path.name} {reason if isinstance(fields, dict) else 'is not a JSON object'}")


def _readable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ValueError: It can't be used.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MAX_ROW + 1)
        text = content.removeprefix(BOM).decode()
    except OSError as error:
        raise ValueError(f"{path.name} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8") from None
    except BatchTasksError:
        raise ValueError(f"{path.name} is a pipe or a device") from None
    if len(content) > MAX_ROW:
        raise ValueError(f"{path.name} is longer than {MAX_ROW // 2**20} MiB")
    if not text.strip():
        raise ValueError(f"{path.name} is empty")
    return text
