"""What `codeact batch` prints: its progress, the summary and reports."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from autogen_codeact.batch.progress import AttemptFailed, BatchCounts, BatchEvent, Notice
from autogen_codeact.batch.results import Row, Summary, Unsuccessful, summarize
from autogen_codeact.cli.output import print_json, printable, say
from autogen_codeact.cli.progress import StatusLine, find_terminal, format_seconds
from autogen_codeact.cli.terminal import Terminal
from codeact_sandbox.types.text import format_count, format_percent

INTERVAL_S = 0.25  # seconds between two drawings, however many tasks end
LINE_S = 10.0  # without a terminal: seconds between two lines
MAX_FAILURES = 50  # failed attempts that get a line; the others are counted
MAX_LINE = 300
_OUTCOMES = ("completed", "stopped", "waiting", "failed", "invalid")


class BatchDisplay(StatusLine):
    """Shows the progress of a batch.

    `live` and `plain` say whether a line is drawn at the bottom of a terminal, and whether lines are written without one. All is
    written by a thread of its own: a terminal that stands still does not stop the batch.
    """

    def __init__(self, *, live: bool = True, plain: bool = True) -> None:
        stream = find_terminal() if live else None
        self._is_plain = plain and stream is None
        super().__init__(stream, self._tick, name="batch progress", interval_s=INTERVAL_S)
        self._counts: Callable[[], BatchCounts] | None = None
        self._messages: deque[str] = deque()
        self._failures = 0
        self._reported = time.monotonic()
        self._ending = False

    def close(self) -> None:
        """Write what is left, and remove the line; repeated calls are harmless."""
        self._ending = True
        super().close()

    def follow(self, counts: Callable[[], BatchCounts]) -> None:
        """Show a batch from now on; `counts` is called in another thread."""
        self._counts = counts

    def on_event(self, event: BatchEvent) -> None:
        match event:
            case AttemptFailed(retry_in=seconds) if seconds is not None:
                again = format_seconds(round(seconds))
                self._add_failure(printable(f"{event.id} failed ({event.error_class}) and is tried again in {again}"))
            case Notice(text=text):
                self._messages.append(printable(text))
            case _:
                pass

    def take(self, row: Row) -> None:
        if row.outcome in ("failed", "invalid"):
            self._add_failure(_failure_line(row))

    def _add_failure(self, line: str) -> None:
        self._failures += 1
        if self._failures <= MAX_FAILURES:
            self._messages.append(line)

    def _tick(self) -> str:
        """Print what waits, and return the line to draw."""
        while self._messages:
            say(self._messages.popleft())
        if self._ending:
            if self._failures > MAX_FAILURES:
                say(f"… and {self._failures - MAX_FAILURES:,} more failed")
            return ""
        if self._counts is None:
            return ""
        counts = self._counts()
        parts = describe_progress(counts)
        if self._is_plain and time.monotonic() - self._reported >= LINE_S and counts.done != counts.total:
            self._reported = time.monotonic()
            say(", ".join(parts))
        return ", ".join(parts)


def _failure_line(row: Row) -> str:
    why = f"{row.error_class}: {row.error}" if row.error_class else row.error or "no reason given"
    line = " ".join(f"{'unusable' if row.outcome == 'invalid' else 'failed'}: {_name(row)}: {why}".split())
    return printable(line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…")


def _name(row: Row | Unsuccessful) -> str:
    return f"{row.id} (repeat {row.repeat})" if row.repeat > 1 else row.id


def format_cost(cost: float) -> str:
    """Format an amount of money: "0.0152", "12.30"."""
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.4f}"


def describe_progress(counts: BatchCounts) -> list[str]:
    """Return the parts of a progress line, the most important first."""
    total = f" of {counts.total:,}" if counts.total is not None else ""
    parts = [f"{counts.done:,}{total} done", f"{counts.failed:,} failed", f"{counts.running:,} running"]
    if counts.seconds_left is not None:
        parts.append(f"about {format_seconds(round(counts.seconds_left))} left")
    if counts.invalid:
        parts.append(f"{counts.invalid:,} unusable")
    if counts.waiting:
        parts.append(f"{counts.waiting:,} to try again")
    if counts.checked:
        parts.append(f"{counts.passed:,} of {counts.checked:,} passed")
    if counts.tokens:
        parts.append(format_count(counts.tokens, "token"))
    if counts.cost is not None:
        parts.append(f"cost {format_cost(counts.cost)}")
    return parts


def print_report(folder: Path, *, as_json: bool = False) -> int:
    summary = summarize(folder)
    if as_json:
        print_json(summary.model_dump(mode="json"))
        return 0
    terminal = Terminal()
    for line in _summary_lines(summary):
        terminal.line(line)
    for row in summary.unsuccessful:
        where = f" ({row.log})" if row.log else ""
        terminal.line(f"{row.outcome}: {_name(row)}: {row.reason or 'not passed'}{where}")
    return 0


def print_summary(summary: Summary, folder: Path) -> None:
    """Print the summary of a batch in a few lines."""
    terminal = Terminal()
    for line in _summary_lines(summary):
        terminal.line(line)
    terminal.line(f"results: {folder / 'results.jsonl'}")
    terminal.line(f"`codeact batch report {folder}` says more")


def _summary_lines(summary: Summary) -> Iterator[str]:
    outcomes = ", ".join(f"{number:,} {name}" for name in _OUTCOMES if (number := getattr(summary, name)))
    repeats = f" in {format_count(summary.rows, 'row')}" if summary.rows != summary.tasks else ""
    yield f"{format_count(summary.tasks, 'task')}{repeats}: {outcomes or 'no results'}"
    if summary.checked:
        percent = format_percent(summary.passed / summary.checked)
        yield f"checks: {summary.passed:,} of {summary.checked:,} passed ({percent})"
    if summary.prompt_tokens or summary.completion_tokens:
        cost = f", cost {format_cost(summary.cost)}" if summary.cost is not None else ""
        yield f"tokens: {summary.prompt_tokens:,} read, {summary.completion_tokens:,} written{cost}"
    if summary.errors:
        yield "errors: " + ", ".join(f"{name} {each:,}" for name, each in summary.errors.items())
