"""The tasks of a batch, and reading them: a bad one is reported, and the others are read."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json, to_json

from autogen_codeact.batch.errors import BatchError

MAX_ROW = 16 * 1024 * 1024  # bytes of one task
MAX_REASON = 500
MAX_LOOKED_AT = 10_000  # characters at the end of a text in which its last number has to be
MAX_DIGITS = 1000
KNOWN = ("id", "task", "files", "data", "expected", "check", "metadata")
JSON_COLUMNS = ("files", "metadata")
CheckKind = Literal["exact", "number", "regex", "python"]
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?<![)\]])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d{1,3}(?!\w))?"
)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def find_number(text: str) -> str | None:
    """Return the last number in a text, without the commas in it, or None."""
    found = _NUMBER.findall(text[-MAX_LOOKED_AT:])
    return found[-1].replace(",", "") if found and len(found[-1]) <= MAX_DIGITS else None


class Check(BaseModel):
    """How an answer is checked.

    Args:
        kind: "exact": the same text, without white space around it. "number": the last number in the answer. "regex": the
            pattern occurs in the answer. "python": code with the variables `answer`, `expected` and `task`; it sets `passed`,
            or an `assert` in it fails. The last two run in a sandbox of their own.
        expected: What the answer is compared with. Default: `expected` of the task.
        tolerance: How far a number may be from the expected one; absolute. Default 1e-6.
        relative: The same, as a part of the expected number. Default 0.
        code: The code of a "python" check.
        timeout: Seconds that a check in a sandbox may take, at least 0.001. Default 30.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: CheckKind = "exact"
    expected: Any = None
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    relative: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    code: str | None = None
    timeout: float = Field(default=30.0, ge=0.001, allow_inf_nan=False)

    def problem(self) -> str | None:
        """Return why it can't work, or None."""
        if self.kind == "python":
            return None if (self.code or "").strip() else "check: a python check needs `code`"
        if self.expected is None:
            return f"check: {self.kind!r} needs `expected`"
        if self.kind == "number" and find_number(as_text(self.expected)) is None:
            return f"check: `expected` is not a number: {self.expected!r:.200}"
        if self.kind == "regex" and not isinstance(self.expected, str):
            return "check: `expected` of a regex has to be a text"
        return None


class Task(BaseModel):
    """One task of a batch.

    Args:
        id: Its name, unique in the batch; any text of up to 200 characters, or a number.
        task: What to do.
        files: Files that are in the workspace when it begins: name there to path on this machine.
        data: Files and folders of this machine that the code can read in /data.
        expected: The right answer, for `check`.
        check: How the answer is checked, or the kind alone. Default: "exact" if there is `expected`, else not at all.
        metadata: Anything else; it is copied into the row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            id: str | int,  # noqa: A002
            task: str,
            files: Mapping[str, str] = ...,
            data: Sequence[str] = ...,
            expected: Any = None,
            check: Check | Mapping[str, Any] | CheckKind | None = None,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    id: str = Field(min_length=1, max_length=200, coerce_numbers_to_str=True)
    task: str = Field(min_length=1)
    files: dict[str, str] = Field(default_factory=dict)
    data: list[str] = Field(default_factory=list)
    expected: Any = None
    check: Check | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _complete_check(cls, fields: Any) -> Any:
        """Give the check what the task expects."""
        expected, check = fields.get("expected"), fields.get("check")
        if check is None and expected is None:
            return fields
        if isinstance(check, Check):
            check = check.model_dump()
        elif not isinstance(check, Mapping):
            check = {"kind": check or "exact"}
        if check.get("expected") is None:
            check = {**check, "expected": expected}
        return {**fields, "check": check}

    @model_validator(mode="after")
    def _check_can_work(self) -> Task:
        if self.check is not None and (problem := self.check.problem()) is not None:
            raise ValueError(problem)
        return self


@dataclass(frozen=True)
class BadTask:
    """A task that can't be used; its place, such as `tasks.jsonl:17`, is the id of its row."""

    place: str
    reason: str


Tasks = str | Path | Iterable[Task | BadTask | Mapping[str, Any] | str]


def read_tasks(source: Tasks) -> list[Task | BadTask]:
    """Return the tasks of a source. It blocks for the disk.

    Args:
        source: Path of a JSONL or CSV file, or an iterable of tasks, objects or texts.

    Raises:
        BatchError: There are no tasks, or the file can't be read.
        TypeError: It is not a source of tasks.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        found = list(_checked(_read_file(path), path.parent))
    elif isinstance(source, Iterable) and not isinstance(source, Task | Mapping | bytes):
        items = ((f"task {number}", _fields_of(item, number)) for number, item in enumerate(source, 1))
        found = list(_checked(items, Path()))
    else:
        raise TypeError(f"tasks has to be a path or an iterable of tasks, not {type(source).__name__}.")
    if not found:
        raise BatchError(f"There are no tasks in {source if isinstance(source, str | Path) else 'the iterable'}.")
    return found


def _read_file(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and the fields of each row, or a `BadTask`."""
    suffix = path.suffix.lower()
    if suffix not in (".jsonl", ".csv"):
        raise BatchError(f"{path}: name a file of tasks *.jsonl (a JSON object in each line) or *.csv.")
    if not path.is_file():
        raise BatchError(f"There are no tasks at {path}: no such file.")
    try:
        yield from _read_csv(path) if suffix == ".csv" else _read_json_lines(path)
    except OSError as error:
        raise BatchError(f"The tasks can't be read from {path}: {error.strerror or error}.") from error


def _read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    number = 0
    with open(path, "rb") as file:
        while line := file.readline(MAX_ROW + 1):
            number += 1
            place = f"{path.name}:{number}"
            if len(line) > MAX_ROW:
                raise BatchError(f"{place} is longer than {MAX_ROW // 2**20} MiB.")
            if line.strip():
                yield place, _json_of(line, place)


def _json_of(text: bytes, place: str) -> Any:
    try:
        return from_json(text.removeprefix(b"\xef\xbb\xbf").rstrip(), allow_inf_nan=False)
    except ValueError as error:
        return BadTask(place, f"it is not JSON: {error}")


def _read_csv(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        try:
            if not {"id", "task"} <= set(rows.fieldnames or ()):
                raise BatchError(f"{path} has no columns `id` and `task` in its first line.")
            for row in rows:
                place = f"{path.name}:{rows.line_num}"
                yield place, _parse_record(row, place)
        except (csv.Error, UnicodeDecodeError) as error:
            raise BatchError(f"{path} is not CSV in UTF-8, near line {rows.line_num + 1}: {error}.") from error


def _parse_record(record: dict[str | None, Any], place: str) -> Any:
    fields: dict[str, Any] = {}
    for column, text in record.items():
        if column is None or text is None:
            return BadTask(place, "it has more or fewer columns than the header")
        if not text and column in KNOWN:
            continue
        if column in JSON_COLUMNS or (column in ("data", "check") and text.lstrip()[:1] in ("{", "[")):
            fields[column] = _json_of(text.encode(), place)
            if isinstance(fields[column], BadTask):
                return BadTask(place, f"column {column!r}: {fields[column].reason}")
        else:
            fields[column] = text
    return fields


def _fields_of(item: Any, number: int) -> Any:
    """Return the fields of an item that the caller has given."""
    place = f"task {number}"
    if isinstance(item, str):
        return {"id": str(number), "task": item}
    fields = item.model_dump() if isinstance(item, Task) else item
    if not isinstance(fields, Mapping):
        return item if isinstance(item, BadTask) else BadTask(place, f"a {type(item).__name__} is not a task")
    try:
        text = to_json(dict(fields))
    except ValueError as error:
        return BadTask(place, f"it can't be written as JSON: {error}")
    return _json_of(text, place)


def _checked(rows: Iterable[tuple[str, Any]], base: Path) -> Iterator[Task | BadTask]:
    """Yield the tasks of rows; paths in them are relative to a folder."""
    ids = set[str]()
    for place, fields in rows:
        task = fields if isinstance(fields, BadTask) else _task_of(fields, place, base)
        if isinstance(task, Task) and task.id in ids:
            task = BadTask(place, f"another task has its id {task.id!r}")
        if isinstance(task, Task):
            ids.add(task.id)
        yield task


def _task_of(fields: Any, place: str, base: Path) -> Task | BadTask:
    if not isinstance(fields, dict):
        return BadTask(place, "it is not a JSON object")
    try:
        task = Task.model_validate(_as_fields(fields, base))
        problem = _problem(task)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[:3]
        problem = "; ".join(
            ": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, "))))
            for each in wrong
        )
    return task if problem is None else BadTask(place, problem[:MAX_REASON])


def _as_fields(row: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the fields of a task with absolute paths; fields that it does not have are metadata."""
    fields = {name: row[name] for name in KNOWN if row.get(name) is not None}
    rest = {name: value for name, value in row.items() if name not in KNOWN}
    metadata = fields.get("metadata", {})
    fields["metadata"] = {**rest, **metadata} if isinstance(metadata, dict) else metadata
    files, data = fields.get("files"), fields.get("data")
    if isinstance(files, dict):
        fields["files"] = {name: _path(each, base) for name, each in files.items()}
    if isinstance(data, str | list):
        fields["data"] = [_path(each, base) for each in ([data] if isinstance(data, str) else data)]
    return fields


def _path(text: Any, base: Path) -> Any:
    if not isinstance(text, str):
        return text
    return str((base / os.path.expanduser(text)).absolute())


def _problem(task: Task) -> str | None:
    """Return why a task can't be run on this machine, or None."""
    for name in task.files:
        place = PurePosixPath(name)
        if not place.name or place.is_absolute() or ".." in place.parts or "\0" in name:
            return f"files: {name!r} is not a path inside the workspace"
    for path in map(Path, (*task.files.values(), *task.data)):
        try:
            usable = path.is_file() or path.is_dir()
        except (OSError, ValueError):
            usable = False
        if not usable:
            return f"{path} is neither a file nor a folder"
    return None
