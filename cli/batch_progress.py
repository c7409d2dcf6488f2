"""The progress of a batch: a few lines at the bottom of a terminal, or a line from time to time without a terminal."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Self, TextIO

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from autogen_codeact.batch.progress import (
    AttemptFailed,
    BatchCounts,
    BatchEvent,
    Notice,
    TaskFinished,
)
from autogen_codeact.batch.rows import Row
from autogen_codeact.cli.batch_format import describe_progress, describe_waits, format_number, format_time_left
from autogen_codeact.cli.exit import say
from autogen_codeact.cli.output import printable, show_status
from autogen_codeact.cli.progress import find_terminal
from autogen_codeact.sandbox.formatting import format_percent

INTERVAL_S = 0.25
"""Seconds between two drawings, however many tasks end."""
LINE_S = 60.0
"""Without a terminal: seconds between two lines, unless more of the batch has been done than `LINE_PART`."""
LINE_PART = 0.1
SHORTEST_S = 2.0
"""Without a terminal: seconds between two lines at least."""
NOTE_S = 15.0
"""Seconds for which the reason of a pause is shown."""
BURST, LINES_PER_S = 10, 1.0
"""Lines about failed tasks: so many at once, then so many in a second. The others are counted."""
MAX_LINE = 300
_BAR_WIDTH = 40
_END_S = 5.0


class BatchDisplay:
    """Shows the progress of a batch; a context manager.

    All of it is written by a thread of its own: a terminal that stands still does not stop the batch.
    """

    def __init__(self, *, live: bool = True, plain: bool = True) -> None:
        stream = find_terminal() if live else None
        self._counts: Callable[[], BatchCounts] | None = None
        self._block = _Block(stream) if stream is not None else None
        self._plain = _PlainLines() if plain else None
        self._lines = _Lines()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._stage = self._note = ""
        self._noted = 0.0

    def __enter__(self) -> Self:
        if self._block is not None:
            show_status(self._block.cleared)
        self._thread = threading.Thread(target=self._work, name="batch progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left, and remove the lines; repeated calls are harmless."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        thread.join(_END_S)  # a terminal that stands still keeps it
        if self._block is not None and not thread.is_alive():
            show_status(None)

    def stage(self, what: str) -> None:
        """Say what happens before the tasks begin."""
        self._stage = printable(what)

    def follow(self, counts: Callable[[], BatchCounts]) -> None:
        """Show a batch from now on."""
        self._counts = counts
        self._stage = ""

    def note(self, line: str) -> None:
        """Show for a while why something takes longer."""
        self._note, self._noted = printable(line), time.monotonic()

    def on_event(self, event: BatchEvent) -> None:
        """Take an event of the batch into account."""
        match event:
            case TaskFinished(row=row) if row.outcome in ("failed", "invalid"):
                self._lines.add_failure(_failure_line(row))
            case AttemptFailed(retry_in=seconds) if seconds is not None:
                self.note(f"{event.id} failed ({event.error_class}) and is tried again in {format_time_left(seconds)}")
            case Notice(text=text):
                self._lines.add(printable(text))
            case _:
                pass

    def _work(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._tick()
        for line in self._lines.take(at_end=True):
            say(line)
        if self._block is not None:
            self._block.erase()

    def _tick(self) -> None:
        for line in self._lines.take():
            say(line)
        counts = self._counts() if self._counts is not None else None
        reasons = [reason for reason in self._reasons(counts) if reason]
        if self._block is not None:
            self._block.draw(counts, reasons)
        elif self._plain is not None and counts is not None:
            self._plain.write(counts, reasons)

    def _reasons(self, counts: BatchCounts | None) -> list[str]:
        """Return what is waited for, and why something takes longer; both may be empty."""
        if counts is None:
            return [self._stage]
        return [describe_waits(counts), self._note if time.monotonic() - self._noted < NOTE_S else ""]


def _failure_line(row: Row) -> str:
    name = f"{row.id} (repeat {row.repeat})" if row.repeat > 1 else row.id
    why = f"{row.error_class}: {row.error}" if row.error_class else row.error or "no reason given"
    line = " ".join(f"{'can not be used' if row.outcome == 'invalid' else 'failed'}: {name}: {why}".split())
    return printable(line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…")


class _Lines:
    """Lines that wait to be written. Those about failed tasks are bounded in number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._allowed = float(BURST)
        self._since = time.monotonic()
        self._left_out = 0

    def add(self, line: str) -> None:
        """Add a line that is written in any case."""
        with self._lock:
            self._waiting.append(line)

    def add_failure(self, line: str) -> None:
        """Add a line about a failed task, which is only counted if there are many."""
        with self._lock:
            now = time.monotonic()
            self._allowed = min(BURST, self._allowed + (now - self._since) * LINES_PER_S)
            self._since = now
            if self._allowed < 1:
                self._left_out += 1
            else:
                self._allowed -= 1
                self._take_left_out()
                self._waiting.append(line)

    def take(self, *, at_end: bool = False) -> list[str]:
        """Return the lines that have not been written."""
        with self._lock:
            if at_end:
                self._take_left_out()
            taken, self._waiting = self._waiting, []
            return taken

    def _take_left_out(self) -> None:
        if self._left_out:
            self._waiting.append(f"… and {format_number(self._left_out)} more failed")
            self._left_out = 0


class _PlainLines:
    """Writes a line about the batch now and then."""

    def __init__(self) -> None:
        self._written = time.monotonic()
        self._done: int | None = None

    def write(self, counts: BatchCounts, reasons: list[str]) -> None:
        """Write a line if it is time for one."""
        if self._done is None:
            self._done = counts.done
        passed = time.monotonic() - self._written
        part = (counts.done - self._done) / counts.total if counts.total else 0.0
        if passed < SHORTEST_S or (passed < LINE_S and part < LINE_PART) or counts.done == counts.total:
            return
        self._written, self._done = time.monotonic(), counts.done
        say(", ".join([*describe_progress(counts), *reasons]))


class _Drawing(StringIO):
    """What rich draws into: it writes nothing to the terminal itself."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._encoding = getattr(stream, "encoding", None)

    @property
    def encoding(self) -> str | None:  # type: ignore[override]
        """That of the terminal, which decides what can be drawn."""
        return self._encoding


class _Block:
    """The lines at the bottom of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=_Drawing(stream), force_terminal=True, highlight=False, markup=False, emoji=False)
        self._point = " · " if "utf" in self._console.encoding else ", "
        self._lock = threading.RLock()
        self._drawn: list[int] = []
        """Width of each line that is on the terminal."""
        self._state = ("", 0)
        """What is on the terminal, and how wide that was."""
        self._in_line = False

    @contextmanager
    def cleared(self, stream: TextIO, text: str) -> Iterator[None]:
        """Hold the lines back while something is printed."""
        with self._lock:
            self.erase()
            try:
                yield
            finally:
                if text and stream.isatty():
                    self._in_line = not text.endswith("\n")

    def draw(self, counts: BatchCounts | None, reasons: list[str]) -> None:
        """Draw the lines, in the place of those that were drawn before."""
        with self._lock:
            width, height = self._size()
            lines = self._render(counts, reasons, max(width - 1, 1))[: max(height - 1, 1)]
            with self._console.capture() as drawn:
                for number, line in enumerate(lines):
                    self._console.print(line, end="" if number == len(lines) - 1 else "\n", soft_wrap=True)
            state = (drawn.get(), width)
            if self._in_line or state == self._state:
                return
            self._write(self._erasing(width) + drawn.get())
            self._drawn, self._state = [line.cell_len for line in lines], state

    def erase(self) -> None:
        """Remove the lines."""
        with self._lock:
            if self._drawn:
                self._write(self._erasing(self._size()[0]))
                self._drawn, self._state = [], ("", 0)

    def _erasing(self, width: int) -> str:
        """Return what erases the lines, from the last one up; a terminal that has become narrower has wrapped them."""
        rows = sum(max(1, -(-each // width)) for each in self._drawn)
        # Line by line: tmux keeps in its history what is erased to the end of the screen at once.
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1) if rows else ""

    def _render(self, counts: BatchCounts | None, reasons: list[str], width: int) -> list[Text]:
        parts = describe_progress(counts) if counts is not None else []
        lines = [self._bar(counts, width)] if counts is not None and counts.total else []
        lines += [Text(line) for line in _wrapped(parts, self._point, width)]
        lines += [Text(reason, style="dim") for reason in reasons]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _bar(self, counts: BatchCounts, width: int) -> Text:
        total = counts.total or 1
        part = f" {format_percent(math.floor(100 * min(counts.done / total, 1)) / 100, digits=0)}"
        bar = ProgressBar(
            total,
            min(counts.done, total),
            width=max(1, min(_BAR_WIDTH, width - len(part))),
            complete_style="cyan",
            finished_style="green",
        )
        with self._console.capture() as drawn:
            self._console.print(bar, end="")
        return Text.assemble(Text.from_ansi(drawn.get()), part)

    def _size(self) -> tuple[int, int]:
        with suppress(OSError, ValueError, AttributeError):
            size = os.get_terminal_size(self._stream.fileno())
            if size.columns and size.lines:
                return size.columns, size.lines
        return self._console.width, self._console.height

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            self._stream.write(text)
            self._stream.flush()


def _wrapped(parts: list[str], point: str, width: int) -> list[str]:
    """Join the parts to lines, and begin a new line where the next one does not fit."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(point) + len(part) <= width:
            lines[-1] += point + part
        else:
            lines.append(part)
    return lines
