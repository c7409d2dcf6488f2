"""Reads a log from where it was left, so that one which is being written can be followed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.runs.reader import Gap
from autogen_codeact.runs.writer import MAX_LINE

_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line of the log is.

    Args:
        number: Its number, from 1.
        start: Where it begins, in bytes.
        size: Its bytes, without the line end.
    """

    number: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log that is the JSON object of an event.

    Args:
        name: The event's type.
        data: The object; its fields are not checked.
        place: Where it is.
    """

    name: str
    data: dict[str, Any]
    place: Place


class LogTail:
    """The lines of a log, read piece by piece.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.offset = 0
        """How many bytes have been read."""
        self.partial = False
        """Whether the log ended in the middle of a line when it was last read to its end."""
        self.at_end = False
        """Whether everything that the log had at the last reading has been read."""
        self._number = 0
        self._seq = 0
        self._skipped = 0
        self._gapped = False
        self._file: tuple[int, int] | None = None

    def read(self, limit: int = MAX_LINE) -> list[LogLine | Gap]:
        """Return the lines that follow.

        Args:
            limit: Bytes after which no further line is read.

        Raises:
            RunFolderError: There is no log, it can't be read, or it is another one now.
        """
        found: list[LogLine | Gap] = []
        with self._folder.open_log() as file:
            self._check_same(file)
            file.seek(self.offset)
            end = self.offset + limit
            self.at_end = False
            try:
                while self.offset < end and self._read_line(file, found):
                    pass
            except OSError as error:
                raise RunFolderError(f"The log of {self._folder.path} can't be read: {error.strerror}.") from error
        return found

    def _check_same(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        same = (status.st_dev, status.st_ino)
        if self._file not in (None, same) or status.st_size < self.offset:
            raise RunFolderError(f"The log of {self._folder.path} was replaced while it was read.")
        self._file = same

    def _read_line(self, file: BinaryIO, found: list[LogLine | Gap]) -> bool:
        """Read a line, or a piece of one that is too long; return False at the end of the log."""
        data = file.readline(_PIECE if self._skipped else MAX_LINE + 1)
        ended = data.endswith(b"\n")
        if (not ended and not self._skipped and len(data) <= MAX_LINE) or not data:
            self.partial = bool(data or self._skipped)  # it may be written to its end later
            self.at_end = True
            return False
        start, self.offset = self.offset, self.offset + len(data)
        if ended and not self._skipped:
            self._number += 1
            found += self._in_order(parse_line(data, Place(self._number, start, len(data) - 1)))
            return True
        self._skipped += len(data)
        if ended:
            size, self._skipped = self._skipped - 1, 0
            self._number += 1
            found += self._in_order(Gap(self._number, f"the line has {size:,} bytes; at most {MAX_LINE:,} are read"))
        return True

    def _in_order(self, line: LogLine | Gap) -> Iterator[LogLine | Gap]:
        if isinstance(line, Gap):
            self._gapped = True
            yield line
            return
        seq, before = line.data["seq"], self._seq
        if seq <= before:
            self._gapped = True
            yield Gap(line.place.number, f"event {seq} is there twice, or in a wrong place")
            return
        if not self._gapped and seq > before + 1:
            yield Gap(line.place.number, f"events are missing before this line: {seq - before - 1:,}", lines=0)
        self._seq, self._gapped = seq, False
        yield line


def parse_line(data: bytes, place: Place) -> LogLine | Gap:
    """Return a line as an event whose fields are not checked.

    Args:
        data: The line.
        place: Where it is.
    """
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return Gap(place.number, "the line is damaged: it is not JSON")
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return Gap(place.number, "the line is damaged: it is not an event")
    if type(event.get("seq")) is not int or event["seq"] < 1:
        return Gap(place.number, "the line is damaged: the event has no number")
    return LogLine(event["type"], event, place)
