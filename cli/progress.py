"""What is happening now, in one line on a terminal that disappears again: a spinner, a few words, and the seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.spinner import Spinner
from rich.text import Text

from autogen_codeact.cli.output import printable, show_status, unfiltered

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

    from autogen_codeact.sandbox import observers

STARTING = "starting sandbox"
THINKING = "model thinking"
ANSWERING = "model answering"
INTERVAL_S = 0.1
QUIET_S = 0.15
"""Seconds without output before the line is drawn again: between the pieces of a fast program it would only flicker."""
_ERASE = "\r\x1b[2K"


class Progress:
    """The line; a context manager. Without a terminal it does nothing.

    What is printed in between through `sys.stdout`, `sys.stderr` or `Terminal` erases the line first, and while such output has
    begun a line of its own, nothing is drawn.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._stream = find_terminal() if enabled else None
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._what = ""
        self._joint = " "
        self._since = self._written = 0.0
        self._drawn = self._in_line = False
        self.watcher = _Watcher(self)
        """An observer for `executor.attach(observers=[…])`: it tells which block runs."""
        if self._stream is not None:
            self._console = Console(file=self._stream, force_terminal=True, highlight=False, markup=False, emoji=False)
            frames = "dots" if "utf" in self._console.encoding else "line"
            self._spinner = Spinner(frames)

    def __enter__(self) -> Self:
        if self._stream is not None:
            show_status(self._cleared)
            self._thread = threading.Thread(target=self._animate, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            show_status(None)
            self.set(None)

    def set(self, what: str | None, joint: str = " ", *, again: bool = False) -> None:
        """Say what is happening from now on."""
        if self._stream is None:
            return
        with self._lock:
            if what != self._what or again:
                self._since = time.monotonic()
            self._what, self._joint = printable(what or ""), joint
            if not what:
                self._erase()

    def follow(self, item: BaseAgentEvent | BaseChatMessage | TaskResult) -> None:
        """Update the line after a message of an agent or a team: from now on a model is asked."""
        from autogen_agentchat.base import TaskResult  # noqa: PLC0415 - it takes a second, and whoever calls this has it
        from autogen_agentchat.messages import ModelClientStreamingChunkEvent  # noqa: PLC0415 - as above

        if self._stream is None or self.watcher.running:
            return
        if isinstance(item, TaskResult):
            self.set(None)
        elif isinstance(item, ModelClientStreamingChunkEvent):
            self.set(ANSWERING)
        else:
            self.set(THINKING, again=True)

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

    def _animate(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            with self._lock:
                if self._what and not self._in_line and time.monotonic() - self._written >= QUIET_S:
                    self._draw()

    def _draw(self) -> None:
        seconds = int(time.monotonic() - self._since)
        line = self._spinner.render(self._console.get_time())
        assert isinstance(line, Text)
        words = f"{self._what}{self._joint}{format_seconds(seconds)}" if seconds else self._what
        line = Text.assemble(line, " ", (words, "dim"))
        line.truncate(max(self._console.width - 1, 1), overflow="ellipsis")
        try:
            with self._console.capture() as drawn:
                self._console.print(line, end="", soft_wrap=True)
            self._write(_ERASE + drawn.get())
            self._drawn = True
        except (OSError, ValueError):  # the terminal is gone
            self._what = ""

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            try:
                self._write(_ERASE)
            except (OSError, ValueError):
                self._what = ""

    def _write(self, text: str) -> None:
        assert self._stream is not None
        self._stream.write(text)
        self._stream.flush()


class _Watcher:
    """Shows the blocks of a sandbox, and their calls to host tools."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._blocks = 0
        self.running = False

    def sandbox_started(self, event: observers.SandboxStarted) -> None:
        """Do nothing."""

    def sandbox_stopped(self, event: observers.SandboxStopped) -> None:
        """Do nothing."""

    def block_started(self, event: observers.BlockStarted) -> None:
        """Show the block."""
        self._blocks += 1
        self.running = True
        self._progress.set(f"running block {self._blocks}", " for ", again=True)

    def block_finished(self, event: observers.BlockFinished) -> None:
        """Show that it is the model's turn."""
        self.running = False
        self._progress.set(THINKING, again=True)

    def call_started(self, event: observers.CallIntent) -> None:
        """Show the call."""
        self._progress.set(f"block {self._blocks} calls {event.name}", " for ", again=True)

    def call_finished(self, event: observers.CallFinished) -> None:
        """Show the block again."""
        if self.running:
            self._progress.set(f"running block {self._blocks}", " for ")


def format_seconds(seconds: int) -> str:
    """Format whole seconds: "3 s", "2 min 05 s"."""
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02} s"


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
