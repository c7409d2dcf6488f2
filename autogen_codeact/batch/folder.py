"""The folder of a batch: its configuration, its rows, and which tasks are done."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from autogen_codeact.batch.errors import BatchError
from autogen_codeact.batch.results import AGAIN, MAX_LINE, RESULTS, Results, Row
from autogen_codeact.batch.tasks import Task
from autogen_codeact.runs.atomic_file import PART, atomic_binary_file
from codeact_sandbox.files.private_folders import keep_private
from codeact_sandbox.types.text import format_count

MANIFEST, RUNS, WORK, LOCK = "batch.json", "runs", "work", "lock"
SCHEMA_VERSION = 1
MAX_SLUG = 40
ACCEPT = "give another folder, or accept the changes (--accept-changes, accept_changes=True)"


def run_name(task: Task, repeat: int) -> str:
    """Return the name of the folder for the runs of a task: readable, and valid on any file system.

    A task that was changed has another one, so that the run of the old task is not continued.
    """
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", task.id).strip("-")[:MAX_SLUG].rstrip("-")
    name = f"{slug or 'task'}-{_task_digest(task)}"
    return name if repeat == 1 else f"{name}.r{repeat}"


def _task_digest(task: Task) -> str:
    # What is in the row only may change.
    content = json.dumps(task.model_dump(mode="json", exclude={"metadata"}), sort_keys=True, default=repr)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def _is_of(log: str | None, task: Task) -> bool:
    """Return whether the log of a row is of a task as it is now."""
    return log is None or f"-{_task_digest(task)}" in log


class BatchFolder:
    """The folder of a batch, which one process writes at a time; made by `open`. Its methods block for the disk."""

    def __init__(self, path: Path, *, accept_changes: bool = False) -> None:
        self.path = path
        self.notices: list[str] = []  # what the user should know about the state in which the folder was found
        self.results: Results
        self._accept = accept_changes
        self._release: Callable[[], None] | None = None
        self._lock = -1
        self._descriptor = -1
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path, configuration: Mapping[str, Any], *, accept_changes: bool = False) -> BatchFolder:
        """Make the folder, or go on with one."""
        folder = cls(path, accept_changes=accept_changes)
        try:
            folder._open(configuration)
        except OSError as error:
            folder.close()
            raise BatchError(_reason(path, error)) from error
        except BaseException:
            folder.close()
            raise
        return folder

    def _open(self, configuration: Mapping[str, Any]) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise BatchError(f"{self.path} is a file: the results of a batch need a folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        manifest = self.path / MANIFEST
        if not manifest.exists() and any(each.name != LOCK and not _is_part(each) for each in self.path.iterdir()):
            raise BatchError(f"{self.path} has other things in it and no batch: give a new or an empty folder.")
        self._take_lock()
        self._keep_private()
        for part in filter(_is_part, self.path.iterdir()):
            part.unlink(missing_ok=True)
        if manifest.exists():
            self._compare(configuration)
        else:
            self._write_manifest(configuration)
        (self.path / RUNS).mkdir(exist_ok=True)
        results, flags = self.path / RESULTS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(results, flags, 0o600))
        found = Results(self.path)
        if found.damaged:
            left_out = f"{format_count(found.damaged, 'damaged line')} of {RESULTS} left out"
            self.notices.append(f"{left_out}: those tasks are run again")
        # An invalid task may have been corrected, or gets a row again.
        kept = [each.offset for each in found.by_key.values() if each.outcome != "invalid"]
        if found.damaged or found.replaced or len(kept) < len(found.by_key):
            self._rewrite(kept)
            found = Results(self.path)
        self.results = found
        self._descriptor = os.open(results, flags)
        os.ftruncate(self._descriptor, found.end)  # what is behind it, a killed process has left

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BatchError(f"another process is working on {self.path}: wait until it has ended.") from None

    def _keep_private(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._release = keep_private(descriptor, with_workspaces=True)
        except PermissionError as error:
            raise BatchError(f"A batch can't be kept in {self.path}: {error.strerror}.") from None
        finally:
            os.close(descriptor)

    def _compare(self, configuration: Mapping[str, Any]) -> None:
        try:
            with open(self.path / MANIFEST, "rb") as file:
                manifest = from_json(file.read(MAX_LINE))
            version, before = manifest["schema_version"], dict(manifest["configuration"])
        except (ValueError, KeyError, TypeError):
            raise BatchError(f"{self.path / MANIFEST} is damaged or not of a batch: give another folder.") from None
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise BatchError(f"{self.path} was written by a newer version of autogen-codeact: update it.")
        now = from_json(to_json(configuration))
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed and not self._accept:
            raise BatchError(
                f"{self.path} was made with another configuration: {', '.join(changed)} changed; {ACCEPT}."
            )
        if changed:
            self.notices.append(f"the configuration has changed: {', '.join(changed)}; rows that are there stay")
            self._write_manifest(configuration)

    def _write_manifest(self, configuration: Mapping[str, Any]) -> None:
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "written": datetime.now(UTC).isoformat(),
            "configuration": dict(configuration),
        }
        with atomic_binary_file(self.path / MANIFEST, private=True, sync=True) as file:
            file.write(to_json(manifest, indent=2) + b"\n")

    def _rewrite(self, offsets: Iterable[int]) -> None:
        """Keep the rows at these places, in their order; after a crash all rows are there, or these."""
        path = self.path / RESULTS
        with open(path, "rb") as rows, atomic_binary_file(path, private=True, sync=True) as file:
            for offset in offsets:
                rows.seek(offset)
                file.write(rows.readline())

    def compare(self, tasks: Sequence[Task], repeats: int) -> int:
        """Compare tasks with those that the rows are of; returns how many rows are of other tasks or repetitions."""
        by_id, others = {task.id: task for task in tasks}, 0
        for (id_, repeat), known in self.results.by_key.items():
            task = by_id.get(id_)
            others += task is None or repeat > repeats
            if task is not None and not self._accept and not _is_of(known.log, task):
                raise BatchError(f"{self.path} was made with another task {id_!r}; {ACCEPT}.")
        return others

    def is_done(self, task: Task, repeat: int) -> bool:
        """Return whether a task has a row that stays."""
        found = self.results.by_key.get((task.id, repeat))
        return found is not None and found.outcome not in AGAIN and _is_of(found.log, task)

    def failed_row(self, task: Task, repeat: int) -> Row | None:
        """Return the row of a task that failed or waited in an earlier command, or None."""
        found = self.results.by_key.get((task.id, repeat))
        if found is None or found.outcome not in AGAIN or not _is_of(found.log, task):
            return None
        return self.results.row((task.id, repeat))

    def run_folder(self, task: Task, repeat: int, *, new: bool = False) -> Path:
        """Return the folder of a task's last run, or of its next one, absolute."""
        runs, name = (self.path / RUNS).absolute(), run_name(task, repeat)
        last, number = runs / name, 1
        while (following := runs / f"{name}.{number + 1}").exists():
            last, number = following, number + 1
        return following if new and last.exists() else last

    def work_folder(self, task: Task, repeat: int) -> Path:
        """Return the folder on the host for the files of a task's workspace, absolute."""
        return (self.path / WORK / run_name(task, repeat)).absolute()

    def add(self, row: Row, task: Task | None = None) -> None:
        """Remove the files of the workspace, unless the task goes on; append the row, and wait until it is on the disk."""
        if task is not None and row.outcome not in AGAIN:
            shutil.rmtree(self.work_folder(task, row.repeat), ignore_errors=True)
        line = _as_line(row)
        with self._writing:
            self.results.put(row, self._append(line))

    def _append(self, line: bytes) -> int:
        """Append a line, wait until it is on the disk, and return where it begins."""
        try:
            size = os.fstat(self._descriptor).st_size
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                os.fdatasync(self._descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, size)
                raise
        except OSError as error:
            raise BatchError(_reason(self.path, error)) from error
        return size

    def compact(self) -> None:
        """Leave out rows in place of which others were added; no further one may be added."""
        if self.results.replaced:
            self._rewrite(known.offset for known in self.results.by_key.values())

    def close(self) -> None:
        """Let other processes work on it; repeated calls are harmless."""
        with self._writing:
            for name in ("_descriptor", "_lock"):
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
    return (
        f"{path} can't be written ({error.strerror or error}): mend that, and run the same again, which goes on from here; "
        "or give another folder."
    )


def describe(make_agent: Callable[..., Any], kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the results of a batch depend on, by name."""
    described: dict[str, Any] = {
        "agent": f"{getattr(make_agent, '__module__', '')}.{getattr(make_agent, '__qualname__', make_agent)}",
        "sandbox": kind,
    }
    with suppress(OSError, TypeError):
        described["source of make_agent"] = _hash(inspect.getsource(make_agent))
    for name, value in sorted(options.items()):
        described[name] = _hash(from_json(to_json(value, fallback=repr)))
    return described


def _hash(value: object) -> str:
    return "sha256:" + hashlib.sha256(to_json(value)).hexdigest()
