"""The folder of a batch: its configuration, its rows, and which tasks are done."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from autogen_codeact.batch.errors import BatchChangedError, BatchFolderError
from autogen_codeact.batch.lines import MAX_LINE, RESULTS, TASKS, compact, lines, parse_json, parse_row, row_key
from autogen_codeact.batch.rows import Row
from autogen_codeact.batch.tasks import BadTask, Task
from autogen_codeact.runs.atomic_file import PART, atomic_binary_file
from autogen_codeact.sandbox.files.private_folders import keep_private
from autogen_codeact.sandbox.types.formatting import format_count

MANIFEST, RUNS, WORK, LOCK = "batch.json", "runs", "work", "lock"
SCHEMA_VERSION = 1
MAX_SLUG = 40
ACCEPT = "give another folder, or accept the changes (--accept-changes, accept_changes=True)"
_RUN_DIGEST = re.compile(r"-([0-9a-f]{10})(?:\.r\d+)?(?:\.\d+)?$")
"""At the end of a name of `run_name`, also of that of a later run."""


def run_name(task: Task, repeat: int) -> str:
    """Return the name of the folder for the runs of a task: readable, and valid on any file system.

    A task that was changed has another one, so that the run of the old task is not continued.
    """
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", task.id).strip("-")[:MAX_SLUG].rstrip("-")
    name = f"{slug or 'task'}-{_task_digest(task)[:10]}"
    return name if repeat == 1 else f"{name}.r{repeat}"


def _task_digest(task: Task) -> str:
    # What is in the row only may change.
    content = task.model_dump(mode="json", exclude={"metadata"})
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, default=repr).encode("utf-8", "surrogatepass")
    ).hexdigest()


@dataclass(frozen=True, slots=True)
class _CountedRow:
    """What a row adds to the sums."""

    outcome: str
    passed: bool | None
    tokens: tuple[int, int]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _CountedRow:
        return cls(row["outcome"], row.get("passed"), (row["prompt_tokens"], row["completion_tokens"]))


def _short(digest: str) -> int:
    return int(digest[:15], 16)


def _is_of(row: Mapping[str, Any], digest: int) -> bool:
    """Return whether a row is that of a task with a digest, and not of one that was changed since."""
    found = _RUN_DIGEST.search(str(row.get("log")))
    return found is None or int(found.group(1), 16) == digest >> 20


class BatchFolder:
    """The folder of a batch, which one process writes at a time; made by `open`. Its methods block for the disk.

    Args:
        path: The folder.
        accept_changes: Whether tasks and a configuration that have changed are accepted; changed tasks are run again.
    """

    def __init__(self, path: Path, *, accept_changes: bool = False) -> None:
        self.path = path
        self.rows = 0
        """Rows that count."""
        self.failed = 0
        """Those of them that failed."""
        self.invalid = 0
        """Those whose task can't be used."""
        self.tokens = (0, 0)
        """Tokens of prompts and completions in all rows."""
        self.passed = 0
        self.checked = 0
        self.notices: list[str] = []
        """What the user should know about the state in which the folder was found."""
        self._accept = accept_changes
        self._index: dict[int, int] = {}
        """Offset of the row of a task and repeat, plus 1; negative if it need not be run again."""
        self._replaced: dict[int, _CountedRow] = {}
        """Rows that no longer count when there is a new one: of tasks that failed or were changed."""
        self._known: dict[int, int] = {}
        self._left: set[str] = set()
        self._release: Callable[[], None] | None = None
        self._lock = -1
        self._results = -1
        self._tasks = -1
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path, configuration: Mapping[str, Any], *, accept_changes: bool = False) -> BatchFolder:
        """Make the folder, or go on with one.

        Args:
            path: The folder.
            configuration: What the results depend on, by name, as JSON values without secrets.
            accept_changes: Whether tasks and a configuration that have changed are accepted.

        Raises:
            BatchFolderError: It can't be used; the message says why.
            BatchChangedError: The configuration differs; the message names what.
        """
        folder = cls(path, accept_changes=accept_changes)
        try:
            folder._open(configuration)
        except OSError as error:
            folder.close()
            raise BatchFolderError(_reason(path, error)) from error
        except BaseException:
            folder.close()
            raise
        return folder

    def _open(self, configuration: Mapping[str, Any]) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise BatchFolderError(f"{self.path} is a file: the results of a batch need a folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        manifest = self.path / MANIFEST
        if not manifest.exists() and any(each.name != LOCK and not _is_part(each) for each in self.path.iterdir()):
            raise BatchFolderError(f"{self.path} has other things in it and no batch: give a new or an empty folder.")
        self._take_lock()
        self._keep_private()
        for part in filter(_is_part, self.path.iterdir()):
            part.unlink(missing_ok=True)
        if manifest.exists():
            self._compare(configuration)
        else:
            self._write_manifest(configuration)
        (self.path / RUNS).mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            self._left = set(os.listdir(self.path / WORK))
        for name in (TASKS, RESULTS):
            os.close(self._open_lines(name))
        if damaged := compact(self.path, invalid=False):
            self.notices.append(
                f"{format_count(damaged, 'damaged line')} of {RESULTS} left out: those tasks are run again"
            )
        self._tasks = self._open_lines(TASKS)
        self._results = self._open_lines(RESULTS)
        self._load()

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BatchFolderError(f"another process is working on {self.path}: wait until it has ended.") from None

    def _keep_private(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._release = keep_private(descriptor, with_workspaces=True)
        except PermissionError as error:
            raise BatchFolderError(f"A batch can't be kept in {self.path}: {error.strerror}.") from None
        finally:
            os.close(descriptor)

    def _compare(self, configuration: Mapping[str, Any]) -> None:
        try:
            with open(self.path / MANIFEST, "rb") as file:
                manifest = parse_json(file.read(MAX_LINE))
            version, before = manifest["schema_version"], dict(manifest["configuration"])
        except (ValueError, KeyError, TypeError):
            raise BatchFolderError(
                f"{self.path / MANIFEST} is damaged or not of a batch: give another folder."
            ) from None
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise BatchFolderError(f"{self.path} was written by a newer version of autogen-codeact: update it.")
        now = from_json(to_json(configuration))
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed and not self._accept:
            raise BatchChangedError(
                f"{self.path} was made with another configuration: {', '.join(changed)} changed; {ACCEPT}."
            )
        if changed:
            self.notices.append(f"the configuration has changed: {', '.join(changed)}; rows that are there stay")
            self._write_manifest(configuration, created=manifest.get("created"))

    def _write_manifest(self, configuration: Mapping[str, Any], created: str | None = None) -> None:
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "created": created or datetime.now(UTC).isoformat(),
            "configuration": dict(configuration),
        }
        with atomic_binary_file(self.path / MANIFEST, private=True, sync=True) as file:
            file.write(to_json(manifest, indent=2) + b"\n")

    def _open_lines(self, name: str) -> int:
        """Open a file of lines for appending; what a killed process has left of a last line is cut off."""
        path = self.path / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        size = os.fstat(descriptor).st_size
        end = size
        while end > 0:
            begin = max(0, end - 65536)
            found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        if end != size:
            os.ftruncate(descriptor, end)
        return descriptor

    # What there is

    def _load(self) -> None:
        for _, line in lines(self.path / TASKS):
            with suppress(ValueError, KeyError, TypeError):
                each = parse_json(line)
                self._known[row_key(each["id"], 0)] = _short(each["sha256"])
        for offset, line in lines(self.path / RESULTS):
            row = parse_row(line)
            key, counted = row_key(row["id"], row["repeat"]), _CountedRow.of(row)
            self._add_row(key, counted, offset)
            digest = self._known.get(row_key(row["id"], 0))
            if digest is not None and not _is_of(row, digest):  # its task was changed, and then not finished
                del self._index[key]
                self._replaced[key] = counted

    def _add_row(self, key: int, row: _CountedRow, offset: int) -> None:
        if (before := self._replaced.pop(key, None)) is not None:
            self._count(before, -1)
        self._count(row)
        self._index[key] = -offset - 1
        if row.outcome == "failed":
            self._index[key] = offset + 1
            self._replaced[key] = row

    def _count(self, row: _CountedRow, by: int = 1) -> None:
        self.rows += by
        self.failed += by * (row.outcome == "failed")
        self.invalid += by * (row.outcome == "invalid")
        self.checked += by * (row.passed is not None)
        self.passed += by * bool(row.passed)
        self.tokens = (self.tokens[0] + by * row.tokens[0], self.tokens[1] + by * row.tokens[1])

    def is_done(self, task_id: str, repeat: int) -> bool:
        """Return whether a task has a row that stays."""
        return self._index.get(row_key(task_id, repeat), 0) < 0

    def failed_row(self, task_id: str, repeat: int) -> Row | None:
        """Return the row of a task that failed in an earlier command, or None."""
        place = self._index.get(row_key(task_id, repeat), 0)
        if place <= 0:
            return None
        with open(self.path / RESULTS, "rb") as file:
            file.seek(place - 1)
            try:
                return Row.model_validate_json(file.readline(MAX_LINE))
            except ValueError:
                return None

    def rows_of(self, task_id: str, repeats: int) -> int:
        """Return how many rows a task has.

        Args:
            task_id: The task.
            repeats: Only repetitions up to this one count.
        """
        keys = (row_key(task_id, repeat) for repeat in range(1, repeats + 1))
        return sum(key in self._index or key in self._replaced for key in keys)

    @property
    def has_tasks(self) -> bool:
        """Whether earlier commands have seen tasks that this one has not seen yet."""
        return bool(self._known)

    @property
    def unseen(self) -> int:
        """How many tasks earlier commands have seen, and this one has not."""
        return len(self._known)

    def compare_tasks(self, tasks: Iterable[Task]) -> None:
        """Compare tasks with what they were.

        Raises:
            BatchChangedError: One has changed, and that is not accepted.
        """
        for task in tasks:
            before = self._known.get(row_key(task.id, 0))
            if before is not None and not self._accept and before != _short(_task_digest(task)):
                raise BatchChangedError(f"{self.path} was made with another task {task.id!r}; {ACCEPT}.")

    def knows(self, task: Task) -> bool:
        """Return whether an earlier command has seen a task as it is now; then it counts as seen. It asks no disk."""
        key = row_key(task.id, 0)
        if self._known.get(key) != _short(_task_digest(task)):
            return False
        del self._known[key]
        return True

    def see_task(self, task: Task, repeats: int) -> None:
        """Remember a task, and compare it with what it was.

        Args:
            task: The task.
            repeats: How often it is done.

        Raises:
            BatchChangedError: It has changed, and that is not accepted.
        """
        self.compare_tasks([task])
        digest = _task_digest(task)
        before = self._known.pop(row_key(task.id, 0), None)
        if before is not None:
            for repeat in range(1, repeats + 1):
                self._forget(row_key(task.id, repeat))
        self._append(self._tasks, to_json({"id": task.id, "sha256": digest}) + b"\n", sync=False)

    def _forget(self, key: int) -> None:
        """Mark a task to be run again; its old row counts until there is a new one."""
        place = self._index.pop(key, 0)
        if place < 0:
            with open(self.path / RESULTS, "rb") as file:
                file.seek(-place - 1)
                self._replaced[key] = _CountedRow.of(parse_row(file.readline(MAX_LINE)))

    def see_bad_task(self, task: BadTask) -> None:
        """Remember a task that can't be used, for the order of the rows."""
        self._append(self._tasks, to_json({"id": task.id, "sha256": None}) + b"\n", sync=False)

    def run_folder(self, task: Task, repeat: int, *, new: bool = False) -> Path:
        """Return the folder of a task's last run, or of its next one, absolute.

        Args:
            task: The task.
            repeat: Which repetition.
            new: Whether the last one can't be continued. Default: it can.
        """
        runs, name = (self.path / RUNS).absolute(), run_name(task, repeat)
        last, number = runs / name, 1
        while (following := runs / f"{name}.{number + 1}").exists():
            last, number = following, number + 1
        return following if new and last.exists() else last

    def work_folder(self, task: Task, repeat: int) -> Path:
        """Return the folder on the host for the files of a task's workspace, absolute."""
        return (self.path / WORK / run_name(task, repeat)).absolute()

    # Rows

    def remove_left(self, task: Task, repeat: int) -> None:
        """Remove what a killed process has left of the workspace of a task that has a row."""
        if run_name(task, repeat) in self._left:
            shutil.rmtree(self.work_folder(task, repeat), ignore_errors=True)

    def add(self, row: Row, task: Task | None = None) -> None:
        """Append a row, wait until it is on the disk, and remove the files of the workspace, unless the task has failed.

        Args:
            row: The row.
            task: Its task, if there is one.

        Raises:
            BatchFolderError: It can't be written.
        """
        line = _as_line(row)
        with self._writing:
            offset = self._append(self._results, line, sync=True)
            self._add_row(row_key(row.id, row.repeat), _CountedRow.of(vars(row)), offset)
        if task is not None and row.outcome != "failed":
            work = self.work_folder(task, row.repeat)
            shutil.rmtree(work, ignore_errors=True)

    def _append(self, descriptor: int, data: bytes, *, sync: bool) -> int:
        """Append whole lines, and return where they begin."""
        try:
            size = os.fstat(descriptor).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    os.fdatasync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        except OSError as error:
            raise BatchFolderError(_reason(self.path, error)) from error
        return size

    def put_in_order(self) -> None:
        """Put the rows in the order of the tasks; no further one may be added.

        Raises:
            BatchFolderError: They could not be; they are as they were.
        """
        try:
            compact(self.path)
        except OSError as error:
            raise BatchFolderError(_reason(self.path, error)) from error

    def close(self) -> None:
        """Let other processes work on it; repeated calls are harmless."""
        with self._writing:
            for name in ("_results", "_tasks", "_lock"):
                descriptor = getattr(self, name)
                setattr(self, name, -1)
                if descriptor >= 0:
                    os.close(descriptor)
            if self._release is not None:
                self._release()
        with suppress(OSError):
            (self.path / WORK).rmdir()


def _is_part(path: Path) -> bool:
    """Return whether a file was left by a process that was killed while it wrote another one as a whole."""
    return path.name.startswith(".") and path.name.endswith(PART)


def _as_line(row: Row) -> bytes:
    try:
        return row.model_dump_json().encode() + b"\n"
    except PydanticSerializationError:  # a surrogate, which a model's server may send as an escape
        text = json.dumps(row.model_dump(), ensure_ascii=False, default=datetime.isoformat)
        return text.encode("utf-8", "replace") + b"\n"


def _reason(path: Path, error: OSError) -> str:
    advice = {
        errno.ENOSPC: "free some space, and run the same again: it goes on from here",
        errno.EDQUOT: "free some space, and run the same again: it goes on from here",
        errno.EROFS: "give a folder that can be written",
        errno.EACCES: "give a folder that can be written",
        errno.EPERM: "give a folder that can be written",
    }.get(error.errno or 0, "give another folder")
    return f"{path} can't be written ({error.strerror or error}): {advice}."
