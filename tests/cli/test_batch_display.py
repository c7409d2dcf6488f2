"""What `codeact batch` shows while it runs: lines at the bottom of a real terminal, or plain lines."""

import os
import pty
import re
import select
import termios
import threading
import time
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace

import pytest

from autogen_codeact.batch.progress import AttemptFailed, BatchCounts, Notice
from autogen_codeact.batch.results import Row
from autogen_codeact.cli import batch_display, progress
from autogen_codeact.cli.batch_display import MAX_FAILURES, BatchDisplay, describe_progress
from tests.cli.support import wait_until

COUNTS = BatchCounts(
    total=200,
    done=50,
    failed=3,
    running=8,
    waiting=2,
    passed=40,
    checked=47,
    prompt_tokens=12_000,
    completion_tokens=345,
    cost=1.5,
    seconds_left=22.5,
)
WORDS = [
    *("50 of 200 done", "3 failed", "8 running", "about 22 s left", "2 to try again", "40 of 47 passed"),
    *("12,345 tokens", "cost 1.50"),
]


class Screen:
    """A pseudo-terminal that standard error is connected to."""

    def __init__(self, width, height=24):
        self.ours, self.theirs = pty.openpty()
        self.resize(width, height)
        self.stream = os.fdopen(self.theirs, "w", encoding="utf-8")
        self.written = ""

    def resize(self, width, height=24):
        termios.tcsetwinsize(self.theirs, (height, width))

    def read(self):
        """Return what was written since the last time."""
        text = b""
        while select.select([self.ours], [], [], 0)[0]:
            text += os.read(self.ours, 65536)
        new = text.decode().replace("\r\n", "\n")
        self.written += new
        return new

    def close(self):
        self.stream.close()
        os.close(self.ours)


@pytest.fixture
def screen(monkeypatch):
    made = Screen(100)
    for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    yield made
    made.close()


@contextmanager
def display_on(screen, **options):
    # Not in a fixture: pytest sets standard error for each phase of a test.
    with redirect_stderr(screen.stream), BatchDisplay(**options) as display:
        yield display


@contextmanager
def shown(screen, counts=lambda: COUNTS):
    with display_on(screen) as display:
        display.follow(counts)
        wait_until(lambda: screen.read() or "done" in screen.written, "a drawing")
        yield display


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def last_line(text):
    """Return the line that was drawn last."""
    return plain(re.split(r"\x1b\[2K|\r", text)[-1])


def row(number, outcome="failed", **fields):
    error = {"error_class": "AuthenticationError", "error": "Error code: 401"} if outcome == "failed" else {}
    return Row(id=f"task-{number}", outcome=outcome, **{**error, **fields})


def test_progress_line_begins_with_the_most_important_part():
    assert describe_progress(COUNTS) == WORDS
    unknown = BatchCounts(done=3, running=1)
    assert describe_progress(unknown) == ["3 done", "0 failed", "1 running"]


def test_terminal_shows_all_counts(screen):
    screen.resize(200)
    with shown(screen):
        assert last_line(screen.written) == ", ".join(WORDS)


def test_line_fits_a_narrow_terminal(screen):
    screen.resize(37)
    with shown(screen):
        assert last_line(screen.written) == "50 of 200 done, 3 failed, 8 running…"


def test_number_of_drawings_does_not_follow_the_number_of_tasks(screen):
    done = 0

    def counts():
        return replace(COUNTS, total=100_000, done=done)

    began = time.monotonic()
    with shown(screen, counts) as display:
        for number in range(20_000):
            done = number
            display.take(row(number, "completed"))
    screen.read()
    drawings = screen.written.count(" done")
    assert 1 <= drawings <= (time.monotonic() - began) / batch_display.INTERVAL_S + 3


def test_failed_tasks_are_named_until_there_are_many(screen):
    with shown(screen) as display:
        for number in range(500):
            display.take(row(number))
    screen.read()
    lines = [line.rpartition("codeact: ")[2] for line in plain(screen.written).splitlines() if "codeact: " in line]
    named = [f"failed: task-{number}: AuthenticationError: Error code: 401" for number in range(MAX_FAILURES)]
    assert lines == [*named, f"… and {500 - MAX_FAILURES} more failed"]


def test_invalid_task_and_repeat_are_named(screen):
    with shown(screen) as display:
        display.take(row(1, "invalid", error="no task", error_class=None))
        display.take(row(2, repeat=3))
        display.take(row(3, "completed"))
        display.on_event(Notice("2 tasks are gone"))
    screen.read()
    lines = [line.rpartition("codeact: ")[2] for line in plain(screen.written).splitlines() if "codeact: " in line]
    assert lines == [
        "unusable: task-1: no task",
        "failed: task-2 (repeat 3): AuthenticationError: Error code: 401",
        "2 tasks are gone",
    ]


def test_repeated_attempt_is_reported(screen):
    with shown(screen) as display:
        display.on_event(AttemptFailed("task-1", 1, 1, "RateLimitError", "429", 8.0))
        text = "task-1 failed (RateLimitError) and is tried again in 8 s"
        wait_until(lambda: screen.read() and text in screen.written, "the reason")


def test_escapes_in_texts_do_not_reach_the_terminal(screen):
    with shown(screen) as display:
        display.take(row("\x1b]0;title\x07", error="\x1b[2J\u202egnp"))
        display.on_event(Notice("note \x1b[2J"))
    assert not re.search(r"\x1b\]|\x1b\[2J|\u202e|\x07", screen.written + screen.read())


def test_dumb_terminal_gets_plain_lines(screen, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(batch_display, "LINE_S", 0.0)
    done = iter(range(0, 200, 10))
    with display_on(screen) as display:
        display.follow(lambda: replace(COUNTS, done=next(done, 190)))
        wait_until(lambda: screen.read() or screen.written.count("\n") >= 2, "two lines")
    assert "\x1b" not in screen.written + screen.read()
    assert screen.written.splitlines()[0] == f"codeact: {', '.join(['0 of 200 done', *WORDS[1:]])}"


def test_nothing_is_written_for_json(screen):
    with display_on(screen, live=False, plain=False) as display:
        display.follow(lambda: COUNTS)
        display.on_event(Notice("told in any case"))
    assert screen.read() == "codeact: told in any case\n"


def test_terminal_that_stands_still_does_not_stop_the_batch(screen, monkeypatch):
    monkeypatch.setattr(progress, "END_S", 0.2)
    with shown(screen) as display:
        (writer,) = (each for each in threading.enumerate() if each.name == "batch progress")
        termios.tcflow(screen.theirs, termios.TCOOFF)  # as Ctrl-S does
        display.on_event(Notice("x" * 100))
        time.sleep(2 * batch_display.INTERVAL_S)
        for number in range(1000):
            display.take(row(number, "completed"))
    assert writer.is_alive()
    termios.tcflow(screen.theirs, termios.TCOON)
    wait_until(lambda: screen.read() or not writer.is_alive(), "the end of the thread")
    writer.join(20)
