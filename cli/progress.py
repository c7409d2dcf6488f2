"""What is happening now: lines at the bottom of a terminal that disappear again."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import TYPE_CHECKING, Any, Self, TextIO

from rich.console import Console
from rich.spinner import Spinner
from rich.text import Text

from autogen_codeact.cli.output import printable, show_status, unfiltered

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

    from codeact_sandbox.types import observers

STARTING = "starting sandbox"
THINKING = "model thinking"
ANSWERING = "model answering"
INTERVAL_S = 0.1
QUIET_S = 0.15
"""Seconds without output before the lines are drawn again: between the pieces of a fast program they would only flicker."""
END_S = 5.0


class StatusLines:
    """Draws lines again and again, in a thread of its own; a context manager.

    What is printed in between through `sys.stdout`, `sys.stderr` or `Terminal` erases the lines first, and while such output has
    begun a line of its own, nothing is drawn. A terminal that stands still does not stop who prints to another stream.
    """

    def __init__(
        self,
        stream: TextIO | None,
        lines: Callable[[Console, int], list[Text]],
        *,
        name: str,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._stream, self._lines, self._interval_s = stream, lines, interval_s
        self._console = Console(file=_Drawing(stream), force_terminal=True, highlight=False, markup=False, emoji=False)
        self.lock = threading.RLock()
        """Held while lines are made and drawn."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._widths: list[int] = []  # of the lines that are on the terminal
        self._drawn = ("", 0)
        self._written = 0.0
        self._in_line = False

    def __enter__(self) -> Self:
        if self._stream is not None:
            show_status(self._cleared)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, and remove the lines; repeated calls are harmless."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(END_S)  # a terminal that stands still keeps it
            if self._stream is not None and not self._thread.is_alive():
                show_status(None)

    def erase(self) -> None:
        """Remove the lines until they are drawn again."""
        with self.lock:
            if self._widths:
                self._write(self._erasing(self._size()[0]))
                self._widths, self._drawn = [], ("", 0)

    def _work(self) -> None:
        while not self._ended.wait(self._interval_s):
            with self.lock:
                quiet = time.monotonic() - self._written >= QUIET_S
                lines = self._lines(self._console, self._size()[0])
                if self._stream is not None and quiet and not self._in_line:
                    self._draw(lines)
        self._lines(self._console, self._size()[0])  # what it still has to print
        self.erase()

    def _draw(self, lines: list[Text]) -> None:
        if not lines:
            self.erase()
            return
        width, height = self._size()
        lines = lines[: max(height - 1, 1)]
        with self._console.capture() as capture:
            for number, line in enumerate(lines):
                line.truncate(max(width - 1, 1), overflow="ellipsis")
                self._console.print(line, end="" if number == len(lines) - 1 else "\n", soft_wrap=True)
        drawn = (capture.get(), width)
        if drawn != self._drawn:
            self._write(self._erasing(width) + drawn[0])
            self._widths, self._drawn = [line.cell_len for line in lines], drawn

    def _erasing(self, width: int) -> str:
        """Return what erases the lines, from the last one up; a terminal that has become narrower has wrapped them."""
        rows = sum(max(1, -(-each // width)) for each in self._widths)
        # Line by line: tmux keeps in its history what is erased to the end of the screen at once.
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1)

    def _size(self) -> tuple[int, int]:
        with suppress(OSError, ValueError, AttributeError):
            if self._stream is None:
                return self._console.width, self._console.height
            size = os.get_terminal_size(self._stream.fileno())
            if size.columns and size.lines:
                return size.columns, size.lines
        return self._console.width, self._console.height

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()

    @contextmanager
    def _cleared(self, stream: TextIO, text: str) -> Iterator[None]:
        """Hold the lines back while something is printed."""
        with self.lock:
            self.erase()
            try:
                yield
            finally:
                if text and stream.isatty():
                    self._in_line = not text.endswith("\n")
                    self._written = time.monotonic()


class _Drawing(StringIO):
    """What rich draws into: it writes nothing to the terminal itself."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._encoding = getattr(stream, "encoding", None)

    @property
    def encoding(self) -> str | None:  # type: ignore[override]
        """That of the terminal, which decides what can be drawn."""
        return self._encoding


class Progress:
    """One line with a spinner, a few words and the seconds; a context manager. Without a terminal it does nothing."""

    def __init__(self, *, enabled: bool = True) -> None:
        stream = find_terminal() if enabled else None
        self._lines = StatusLines(stream, self._render, name="progress") if stream is not None else None
        self._what, self._joint, self._since = "", " ", 0.0
        self._spinner: Spinner | None = None
        self.watcher = _Watcher(self)
        """An observer for `executor.attach(observers=[…])`: it tells which block runs."""

    def __enter__(self) -> Self:
        if self._lines is not None:
            self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()

    def set(self, what: str | None, joint: str = " ", *, again: bool = False) -> None:
        """Say in a few words what is happening from now on, or None; `again`: the seconds start again from 0 in any case."""
        if self._lines is None:
            return
        with self._lines.lock:
            if what != self._what or again:
                self._since = time.monotonic()
            self._what, self._joint = printable(what or ""), joint
            if not what:
                self._lines.erase()

    def follow(self, item: BaseAgentEvent | BaseChatMessage | TaskResult) -> None:
        """Update the line after a message of an agent or a team, whose text is not shown: from now on a model is asked."""
        from autogen_agentchat.base import TaskResult  # noqa: PLC0415 - it takes a second, and whoever calls this has it
        from autogen_agentchat.messages import ModelClientStreamingChunkEvent  # noqa: PLC0415 - as above

        if self._lines is None or self.watcher.running:
            return
        if isinstance(item, TaskResult):
            self.set(None)
        elif isinstance(item, ModelClientStreamingChunkEvent):
            self.set(ANSWERING)
        else:
            self.set(THINKING, again=True)

    def _render(self, console: Console, _: int) -> list[Text]:
        if not (what := self._what):
            return []
        if self._spinner is None:
            self._spinner = Spinner("dots" if "utf" in console.encoding else "line")
        turn = self._spinner.render(console.get_time())
        assert isinstance(turn, Text)
        seconds = int(time.monotonic() - self._since)
        words = f"{what}{self._joint}{format_seconds(seconds)}" if seconds else what
        return [Text.assemble(turn, " ", (words, "dim"))]


class _Watcher:
    """Shows the blocks of a sandbox, and their calls to host tools."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._blocks = 0
        self.running = False

    def _ignore(self, event: Any) -> None:
        pass

    sandbox_started = sandbox_stopped = _ignore

    def block_started(self, event: observers.BlockStarted) -> None:
        self._blocks += 1
        self.running = True
        self._progress.set(f"running block {self._blocks}", " for ", again=True)

    def block_finished(self, event: observers.BlockFinished) -> None:
        self.running = False
        self._progress.set(THINKING, again=True)

    def call_started(self, event: observers.CallIntent) -> None:
        self._progress.set(f"block {self._blocks} calls {event.name}", " for ", again=True)

    def call_finished(self, event: observers.CallFinished) -> None:
        if self.running:
            self._progress.set(f"running block {self._blocks}", " for ")


def format_seconds(seconds: int) -> str:
    """Format whole seconds: "3 s", "2 min 05 s", "3 h 05 min"."""
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60:02} min"
    return f"{minutes} min {seconds % 60:02} s" if minutes else f"{seconds} s"


def find_terminal() -> TextIO | None:
    """Return standard error or standard output if it is a terminal that can erase a line."""
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return None
    for stream in (sys.stderr, sys.stdout):
        try:
            if stream.isatty():
                return unfiltered(stream)
        except (AttributeError, ValueError):  # there is none, or it is closed
            continue
    return None
