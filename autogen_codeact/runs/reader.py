"""Reads the log of a run, event by event. Its content comes from models and their code, so nothing in it is trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from autogen_core.code_executor import CodeResult
from pydantic import ValidationError

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.chain import Chain
from autogen_codeact.runs.errors import RunError, RunFileError, RunFolderError
from autogen_codeact.runs.events import SCHEMA_VERSION, RunEvent, RunStarted, parse_event
from autogen_codeact.runs.folder import FILES, Line, MemoryLimit, RunFolder, json_cost
from autogen_codeact.runs.results import ResultRecord, StoredFile
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.writer import MAX_LINE
from codeact_sandbox.types.filenames import printable

_MAX_REASON = 200
KNOWN = frozenset(get_args(kind.model_fields["type"].annotation)[0] for kind in get_args(get_args(RunEvent)[0]))
"""The types of events that this version knows."""


@dataclass(frozen=True)
class Gap:
    """A part of a log that can't be read."""

    line: int
    reason: str
    lines: int = 1
    cut_off: bool = False
    type: Literal["gap"] = "gap"


@dataclass(frozen=True)
class RawEvent:
    """A line of a log that is the JSON object of an event; its fields are not checked.

    Args:
        end: Where the next line begins, in bytes from the beginning of the log.
        text: The line itself, if it is known.
    """

    name: str
    data: dict[str, Any]
    line: int
    end: int
    text: bytes = b""


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open the log of a run, which may be incomplete, damaged, or still being written.

    Args:
        path: The run's folder.

    Returns:
        The run; iterating it gives its events in order.

    Raises:
        RunFolderError: There is no log, or it does not begin as the log of a run.
        RunError: A newer version of this package has written it.
    """
    return Run(RunFolder(path))


class Run:
    """A run that is read from its folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.started = self._first()
        """The event that the log begins with."""

    def __iter__(self) -> Iterator[RunEvent | Gap]:
        """Return the events in order; one at a time is held in memory.

        Raises:
            RunFolderError: The log can't be read.
            RunError: A newer version of this package has written to it.
        """
        for each in self.raw_events():
            yield self.parse(each) if isinstance(each, RawEvent) else each

    def raw_events(self, chain: Chain | None = None) -> Iterator[RawEvent | Gap]:
        """Return the events without checking their fields, for those who need only some of them.

        Args:
            chain: Checks who has written them. Default: they are not checked.

        Raises:
            RunFolderError: The log can't be read.
            RunError: A newer version of this package has written to it.
        """
        for read in LogReader(self.folder, chain).read():
            if isinstance(read, RawEvent):
                self._check_version(read)
            yield read

    def parse(self, raw: RawEvent, budget: MemoryLimit | None = None) -> RunEvent | Gap:
        """Return a raw event as what it is.

        Args:
            raw: The event.
            budget: The memory that it may take if it is in a file. Default: 24 MiB.

        Returns:
            The event; a `Gap` if its fields are wrong, or if its file is missing, changed or too large.
        """
        if raw.name not in KNOWN:
            return Gap(raw.line, _short(f"this version does not know events of type {raw.name}"))
        data = dict(raw.data)
        try:
            if stored := data.pop("stored", None):
                data = self._whole(StoredFile.model_validate(stored), budget or MemoryLimit()) | data
            return parse_event(data)
        except ValidationError as error:
            return Gap(raw.line, _short(f"this is not an event of type {raw.name}: {first_problem(error)}"))
        except (RunFileError, ValueError, TypeError, RecursionError) as error:
            return Gap(raw.line, _short(str(error)))

    def read_file(self, file: StoredFile) -> bytes:
        """Return a file of the run.

        Args:
            file: What an event says about it.

        Raises:
            RunFileError: It was left out, is missing, or was changed.
        """
        return self.folder.read_file(file)

    def result(self, record: ResultRecord, budget: MemoryLimit | None = None) -> CodeResult:
        """Return a result of code. The paths of its files are those of the copies in the run's folder.

        Args:
            record: The result in the log. The paths in it are not used: who wrote the log could have named any file.
            budget: The memory that its files may take. Default: 24 MiB.

        Raises:
            RunFileError: A form of a display, or an image of a tool, is missing or was changed; or they take too much memory.
        """
        result = record.result(self.reading(budget or MemoryLimit()))
        if isinstance(result, ExecutionResult):
            paths = [self.folder.path_of(each.file) for each in record.artifacts]
            result.artifacts = tuple(
                replace(each, path=path) for each, path in zip(result.artifacts, paths, strict=True)
            )
            result.displays = tuple(replace(each, path=None) for each in result.displays)
        return result

    def reading(self, budget: MemoryLimit) -> Callable[[StoredFile], bytes]:
        """Return a function that reads files of the run, and uses a budget.

        Args:
            budget: The memory that they may take.
        """

        def read(file: StoredFile) -> bytes:
            budget.take(file.size if file.sha256 is not None else 0, f"{FILES}/{file.sha256}")
            return self.read_file(file)

        return read

    def _whole(self, file: StoredFile, budget: MemoryLimit) -> dict[str, Any]:
        """Return the fields of an event that is in a file."""
        content = self.reading(MemoryLimit(budget.left))(file)
        budget.take(json_cost(content, budget.left), f"{FILES}/{file.sha256}")
        fields: dict[str, Any] = json.loads(content)
        return fields

    def _first(self) -> RunStarted:
        raw = next(self.raw_events(), None)
        if raw is None:
            raise RunFolderError(f"{self.folder.path / EVENTS} is empty: the run ended before it began.")
        found = self.parse(raw) if isinstance(raw, RawEvent) else raw
        if isinstance(found, RunStarted):
            return found
        reason = f"line {found.line}: {found.reason}" if isinstance(found, Gap) else "its first event is another one"
        raise RunFolderError(
            f"{self.folder.path} can't be read: its log does not begin with the start of a run ({reason})."
        )

    def _check_version(self, raw: RawEvent) -> None:
        version = raw.data.get("schema_version")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise RunError(
                f"A newer version of this package has written {self.folder.path} (schema {_short(str(version))} in line "
                f"{raw.line}; this version reads up to {SCHEMA_VERSION}). Update autogen-codeact to read it."
            )


class LogReader:
    """Reads a log from where it was left, so that one which is being written can be followed."""

    def __init__(self, folder: RunFolder, chain: Chain | None = None) -> None:
        self._folder = folder
        self._chain = chain
        self.at_end = False  # whether everything that the log had at the last reading has been read
        self.cut_off = False  # whether the log ended in the middle of a line when it was last read to its end
        self._last: Line | None = None
        self._seq = 0
        self._gapped = False

    def read(self, limit: int | None = None, *, follow: bool = False) -> Iterator[RawEvent | Gap]:
        """Yield the events that follow, and a gap for the lines between them that are none."""
        gap: Gap | None = None
        for read in self._lines(limit, follow=follow):
            if isinstance(read, Gap):
                gap = read if gap is None else replace(gap, lines=gap.lines + read.lines, cut_off=read.cut_off)
                continue
            if gap is not None:
                yield gap
            gap = None
            yield read
        if gap is not None:
            yield gap

    def _lines(self, limit: int | None, *, follow: bool) -> Iterator[RawEvent | Gap]:
        begin = self._last.end if self._last is not None else 0
        self.at_end = self.cut_off = False
        for line in self._folder.lines(MAX_LINE, self._chain, after=self._last):
            if line.cut_off and follow:
                self.cut_off = True
                break
            self._last = line
            yield from self._in_order(read_line(line), line.number)
            if limit is not None and line.end - begin >= limit:
                return
        self.at_end = True

    def _in_order(self, read: RawEvent | Gap, number: int) -> Iterator[RawEvent | Gap]:
        if isinstance(read, Gap):
            self._gapped = True
            yield read
            return
        seq, before = read.data["seq"], self._seq
        if seq <= before:
            self._gapped = True
            yield Gap(number, f"event {seq} is there twice, or in a wrong place")
            return
        if not self._gapped and seq > before + 1:
            yield Gap(number, f"events are missing before this line: {seq - before - 1:,}", lines=0)
        self._seq, self._gapped = seq, False
        yield read


def read_line(line: Line) -> RawEvent | Gap:
    """Return a line of a log as an event whose fields are not checked."""
    if line.cut_off:
        return Gap(line.number, "the last line is incomplete", cut_off=True)
    if line.data is None:
        return Gap(line.number, f"the line has {line.size:,} bytes; at most {MAX_LINE:,} are read")
    try:
        data = json.loads(line.data)
    except (ValueError, RecursionError):
        return Gap(line.number, "the line is damaged: it is not JSON")
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return Gap(line.number, "the line is damaged: it is not an event")
    if type(data.get("seq")) is not int or data["seq"] < 1:
        return Gap(line.number, "the line is damaged: the event has no number")
    return RawEvent(data["type"], data, line.number, line.end, line.data)


def first_problem(error: ValidationError) -> str:
    """Return which field is wrong, and why."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return _short(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"
