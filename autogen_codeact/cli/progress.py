"""What is happening now: a line at the bottom of a terminal that disappears again."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self, TextIO

from autogen_codeact.cli.output import can_erase, printable, show_status, unfiltered

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

    from codeact_sandbox.types import observers

STARTING = "starting sandbox"
THINKING = "model thinking"
ANSWERING = "model answering"
INTERVAL_S = 0.1
QUIET_S = 0.15
"""Seconds without output before the line is drawn again: between the pieces of a fast program it would only flicker."""
END_S = 5.0
_ERASE = "\r\x1b[2K"
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class StatusLine:
    """Draws a line again and again, in a thread of its own; a context manager.

    What is printed in between through `sys.stdout`, `sys.stderr` or `Terminal` erases the line first, and while such output has
    begun a line of its own, nothing is drawn. A terminal that stands still does not stop who prints to another stream.
    """

    def __init__(
        self, stream: TextIO | None, line: Callable[[], str], *, name: str, interval_s: float = INTERVAL_S
    ) -> None:
        self._stream, self._line, self._interval_s = stream, line, interval_s
        self._lock = threading.RLock()  # held while the line is made and drawn
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._drawn = ""
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
        """End the thread, and remove the line; repeated calls are harmless."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(END_S)  # a terminal that stands still keeps it
            if self._stream is not None and not self._thread.is_alive():
                show_status(None)

    def _erase(self) -> None:
        with self._lock:
            self._draw("")

    def _work(self) -> None:
        while not self._ended.wait(self._interval_s):
            with self._lock:
                quiet = time.monotonic() - self._written >= QUIET_S
                line = self._line()
                if quiet and not self._in_line:
                    self._draw(line)
        self._line()  # what it still has to print
        self._erase()

    def _draw(self, line: str) -> None:
        if self._stream is None:
            return
        width = _width_of(self._stream) - 1
        line = line if len(line) <= width else f"{line[: width - 1]}…"
        if line != self._drawn:
            self._drawn = line
            if line and not os.environ.get("NO_COLOR"):
                line = f"{_DIM}{line}{_PLAIN}"
            with suppress(OSError, ValueError):  # the terminal is gone
                self._stream.write(f"{_ERASE}{line}")
                self._stream.flush()

    @contextmanager
    def _cleared(self, stream: TextIO, text: str) -> Iterator[None]:
        """Hold the line back while something is printed."""
        with self._lock:
            self._erase()
            try:
                yield
            finally:
                if text and stream.isatty():
                    self._in_line = not text.endswith("\n")
                    self._written = time.monotonic()


def _width_of(stream: TextIO) -> int:
    with suppress(OSError, ValueError, AttributeError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


class Progress(StatusLine):
    """One line with a spinner, a few words and the seconds. Without a terminal it does nothing."""

    def __init__(self, *, enabled: bool = True) -> None:
        stream = find_terminal() if enabled else None
        super().__init__(stream, self._render, name="progress")
        self._what, self._since = "", 0.0
        self._spinner = cycle("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if "utf" in (getattr(stream, "encoding", "") or "").lower() else "-\\|/")
        self.watcher = _BlockWatcher(self)
        """An observer for `executor.attach(observers=[…])`: it tells which block runs."""

    def set(self, what: str | None) -> None:
        """Say in a few words what is happening from now on, or None."""
        with self._lock:
            if what != self._what or what == THINKING:
                self._since = time.monotonic()
            self._what = printable(what or "")
            if not what:
                self._erase()

    def follow(self, item: BaseAgentEvent | BaseChatMessage | TaskResult) -> None:
        """Update the line after a message of an agent or a team, whose text is not shown: from now on a model is asked."""
        from autogen_agentchat.base import TaskResult  # noqa: PLC0415 - it takes a second, and whoever calls this has it
        from autogen_agentchat.messages import ModelClientStreamingChunkEvent  # noqa: PLC0415 - as above

        if self._stream is None or self.watcher.running:
            return
        if isinstance(item, TaskResult):
            self.set(None)
        elif isinstance(item, ModelClientStreamingChunkEvent):
            self.set(ANSWERING)
        else:
            self.set(THINKING)

    def _render(self) -> str:
        if not self._what:
            return ""
        seconds = int(time.monotonic() - self._since)
        return f"{next(self._spinner)} {self._what}{f', {format_seconds(seconds)}' if seconds else ''}"


class Watcher:
    """An observer of a sandbox that takes no notice of anything; its subclasses do of something."""

    def _ignore(self, event: Any) -> None:
        pass

    sandbox_started = sandbox_stopped = block_started = block_finished = call_started = call_finished = _ignore


class _BlockWatcher(Watcher):
    """Shows the blocks of a sandbox."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._blocks = 0
        self.running = False

    def block_started(self, event: observers.BlockStarted) -> None:
        self._blocks += 1
        self.running = True
        self._progress.set(f"running block {self._blocks}")

    def block_finished(self, event: observers.BlockFinished) -> None:
        self.running = False
        self._progress.set(THINKING)


def format_seconds(seconds: int) -> str:
    """Format whole seconds: "3 s", "2 min 05 s", "3 h 05 min"."""
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60:02} min"
    return f"{minutes} min {seconds % 60:02} s" if minutes else f"{seconds} s"


def find_terminal() -> TextIO | None:
    """Return standard error or standard output if it is a terminal that can erase a line."""
    if not can_erase():
        return None
    for stream in (sys.stderr, sys.stdout):
        try:
            if stream.isatty():
                return unfiltered(stream)
        except (AttributeError, ValueError):  # there is none, or it is closed
            continue
    return None
