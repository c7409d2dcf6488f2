"""Reading the tasks of a batch from files or iterables: a bad one is reported, and the others are read, in bounded memory."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import os
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json

from autogen_codeact.batch.answer_checks import parse_json
from autogen_codeact.batch.checks import check_problem
from autogen_codeact.batch.errors import BatchTasksError
from autogen_codeact.batch.tasks import BadTask, Task
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.text import format_count

MAX_ROW = 16 * 1024 * 1024  # bytes of one task
TOO_LONG = f"it is longer than {MAX_ROW // 2**20} MiB"
BOM = b"\xef\xbb\xbf"
KNOWN = ("id", "task", "files", "data", "expected", "check", "metadata")
JSON_COLUMNS = ("files", "metadata")
_OTHER_FILES = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xff\xfe", b"\xfe\xff")
"""How files begin that are compressed, spreadsheets, of Parquet or UTF-16."""
Tasks = str | Path | Iterable[Task | BadTask | Mapping[str, Any] | str] | AsyncIterable[Any]
AT_ONCE = 256
AT_ONCE_S = 0.05
MAX_REASON = 500


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
        self.number = number  # of the last line, from 1
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
        self.first = 0  # line at which the last record begins
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


async def read_tasks(source: Tasks) -> AsyncGenerator[Task | BadTask, None]:
    """Yield the tasks of a source as they are needed."""
    if isinstance(source, Task | BadTask | Mapping | bytes):
        raise TypeError(f"tasks has to be a path or an iterable of tasks, not one {type(source).__name__}.")
    empty = True
    read = _read_file(Path(source)) if isinstance(source, str | Path) else _read_items(source)
    try:
        async for task in read:
            empty = False
            yield task
    finally:
        await read.aclose()
    if empty:
        what = source if isinstance(source, str | Path) else "the iterable"
        raise BatchTasksError(f"There are no tasks in {what}.")


async def _read_file(path: Path) -> AsyncGenerator[Task | BadTask, None]:
    pieces = _some(read_path(path), _TaskFactory(path.parent))
    try:
        while tasks := await in_thread(next, pieces, None):
            for task in tasks:
                yield task
    finally:
        pieces.close()


def _some(rows: Iterator[FoundRow | BadTask], factory: _TaskFactory) -> Generator[list[Task | BadTask]]:
    """Yield as many tasks at once as take a moment."""
    while first := next(rows, None):
        deadline = time.monotonic() + AT_ONCE_S
        taken = [factory.make(first)]
        while len(taken) < AT_ONCE and time.monotonic() < deadline and (row := next(rows, None)):
            taken.append(factory.make(row))
        yield taken


async def _read_items(source: Any) -> AsyncGenerator[Task | BadTask, None]:
    if not isinstance(source, Iterable | AsyncIterable):
        raise TypeError(f"tasks has to be a path or an iterable of tasks, not {type(source).__name__}.")
    factory = _TaskFactory(Path())
    items = source if isinstance(source, AsyncIterable) else _each(source)
    number = 0
    iterator = aiter(items)
    try:
        async for item in iterator:
            number += 1
            yield factory.make_item(item, number)
    finally:
        if (close := getattr(iterator, "aclose", None)) is not None:
            await close()


async def _each(source: Iterable[Any]) -> AsyncIterator[Any]:
    for number, item in enumerate(source):
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # others have to run, too
        yield item


class _TaskFactory:
    """Makes tasks with different ids."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._ids: set[int] = set()  # hashes of the ids: 100,000 take 10 MB

    def make(self, found: FoundRow | BadTask) -> Task | BadTask:
        """Return the task of a row."""
        if isinstance(found, BadTask):
            return self._bad(found.id, found.place, found.reason)
        try:
            task = Task.model_validate(_as_fields(found.fields, self._base))
            problem = task_problem(task)
        except ValidationError as error:
            problem = _describe(error, found.fields)
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            return self._bad(_usable_id(found.fields.get("id")) or found.name, found.place, problem)
        if _hash(task.id) in self._ids:
            return self._bad(found.name, found.place, f"another task has its id {task.id!r}")
        self._ids.add(_hash(task.id))
        return task

    def make_item(self, item: Any, number: int) -> Task | BadTask:
        """Return the task of an item that the caller has given."""
        place, name = f"task {number}", f"task-{number}"
        if isinstance(item, BadTask):
            return self.make(item)
        if isinstance(item, str):
            item = {"id": str(number), "task": item}
        fields = item.model_dump() if isinstance(item, Task) else item
        if not isinstance(fields, Mapping):
            return self._bad(name, place, f"a {type(item).__name__} is not a task: give a Task, a mapping or a text")
        try:
            text = to_json(dict(fields))
            if len(text) > MAX_ROW:
                return self._bad(_usable_id(fields.get("id")) or name, place, TOO_LONG)
            return self.make(FoundRow(place, name, parse_json(text)))
        except Exception as error:  # noqa: BLE001 - objects of the caller
            return self._bad(_usable_id(fields.get("id")) or name, place, f"it can't be written as JSON: {error}")

    def _bad(self, name: str, place: str, reason: str) -> BadTask:
        choices = (name, f"{name[:120]} ({place[-60:]})", f"{name[:120]} (bad task {len(self._ids)})")
        name = next((each for each in choices if _hash(each) not in self._ids), choices[-1])
        self._ids.add(_hash(name))
        return BadTask(name, place, reason[:MAX_REASON])


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _usable_id(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**50:
        return str(value)
    if not isinstance(value, str) or not 0 < len(value) <= 200 or any("\ud800" <= each <= "\udfff" for each in value):
        return None
    return value


def _as_fields(row: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the fields of a task with absolute paths; fields that it does not have are metadata."""
    fields = {name: row[name] for name in KNOWN if row.get(name) is not None}
    rest = {name: value for name, value in row.items() if name not in KNOWN}
    metadata = fields.get("metadata", {})
    fields["metadata"] = {**rest, **metadata} if isinstance(metadata, Mapping) else metadata
    for name in ("files", "data"):
        if name in fields:
            fields[name] = _as_paths(name, fields[name], base)
    return fields


def _as_paths(field: str, value: Any, base: Path) -> Any:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        paths = [_path(field, each, base) for each in value]
        if field == "data":
            return paths
        named = {Path(path).name: path for path in paths}
        if len(named) < len(paths):
            raise ValueError("files: two of them have the same name: give an object, name in the workspace to path")
        return named
    if field == "files" and isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()):
        return {name: _path(field, each, base) for name, each in value.items()}
    return value


def _path(field: str, text: str, base: Path) -> str:
    if "\0" in text or not text:
        raise ValueError(f"{field}: {text!r} is not a path")
    path = Path(text)
    with suppress(RuntimeError):
        path = path.expanduser()
    return str((base / path).absolute())


def task_problem(task: Task) -> str | None:
    """Return why a task can't be run on this machine, or None."""
    for name in task.files:
        place = PurePosixPath(name)
        if not place.name or place.is_absolute() or ".." in place.parts or "\0" in name:
            return f"files: {name!r} is not a path inside the workspace"
    for field, paths in (("files", task.files.values()), ("data", task.data)):
        for path in paths:
            if (problem := _path_problem(path)) is not None:
                return f"{field}: {path} {problem}"
    return check_problem(task)


def _path_problem(text: str) -> str | None:
    try:
        path = Path(text)
        if path.is_file() or path.is_dir():
            return None
        return "is neither a file nor a folder" if path.exists() else "does not exist"
    except (OSError, ValueError) as error:
        return f"can't be read: {error}"


def _describe(error: ValidationError, fields: Iterable[str]) -> str:
    """Return what is wrong with the first fields that are, without their values."""
    reasons = []
    for each in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        place = ".".join(str(part) for part in each["loc"])
        if each["type"] == "missing":
            near = get_close_matches(place, {*map(str, fields)} - {*KNOWN}, 1)
            reasons.append(f"it has no `{place}`" + (f" (but {near[0]!r})" if near else ""))
        else:
            reasons.append(f"{place}: {each['msg'][:1].lower()}{each['msg'][1:]}")
    return "; ".join(reasons)
