"""Reading the tasks of a batch, one after the other: a bad one is reported, and the others are read."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from autogen_codeact.batch.answer_checks import parse_json
from autogen_codeact.batch.checks import check_problem
from autogen_codeact.batch.errors import BatchTasksError
from autogen_codeact.batch.task_files import KNOWN, MAX_ROW, TOO_LONG, FoundRow, read_path
from autogen_codeact.batch.tasks import BadTask, Task
from codeact_sandbox.host.waiting import in_thread

Tasks = str | Path | Iterable[Task | BadTask | Mapping[str, Any] | str] | AsyncIterable[Any]

AT_ONCE = 256
AT_ONCE_S = 0.05
MAX_REASON = 500


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
        self._ids: set[int] = set()
        """Hashes of the ids: 100,000 take 10 MB."""

    def make(self, found: FoundRow | BadTask) -> Task | BadTask:
        """Return the task of a row."""
        if isinstance(found, BadTask):
            return self._bad(found.id, found.place, found.reason)
        try:
            task = Task.model_validate(_as_fields(found.fields, self._base))
            problem = task_problem(task)
        except ValidationError as error:
            problem = _describe(error)
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


def _describe(error: ValidationError) -> str:
    """Return what is wrong with the first fields that are, without their values."""
    reasons = []
    for each in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        place = ".".join(str(part) for part in each["loc"])
        if each["type"] == "missing":
            reasons.append(f"it has no `{place}`")
        else:
            reasons.append(f"{place}: {each['msg'][:1].lower()}{each['msg'][1:]}")
    return "; ".join(reasons)
