"""Prints the results of a batch, as text or JSON."""

from __future__ import annotations

from pathlib import Path

from autogen_codeact.batch.report import compare, comparison_text, summary_text
from autogen_codeact.batch.summary import Summary, summarize
from autogen_codeact.cli.batch_format import format_cost, format_number, format_tokens
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.sandbox.formatting import format_count, format_percent

_OUTCOMES = ("completed", "stopped", "failed", "invalid")


def print_report(folder: Path, other: Path | None, *, by: str | None = None, as_json: bool = False) -> int:
    """Print the summary of a batch, or what differs between two."""
    if by is not None and other is not None:
        raise CommandError("--by is for the report of one batch: leave out the second folder, or --by.")
    found = summarize(folder, by=by) if other is None else compare(folder, other)
    if isinstance(found, Summary) and by is not None and set(found.groups) <= {"null"}:
        raise CommandError(f"No task of {folder} has {by} in its metadata.")
    if as_json:
        print_json(found.model_dump(mode="json"))
        return 0
    text = summary_text(found) if isinstance(found, Summary) else comparison_text(found)
    terminal = Terminal()
    for line in text.splitlines():
        terminal.line(line)
    return 0


def print_summary(summary: Summary, folder: Path) -> None:
    """Print the summary of a batch in a few lines."""
    terminal = Terminal()
    for line in summary_lines(summary):
        terminal.line(line)
    terminal.line(f"results: {folder / 'results.jsonl'}")
    terminal.line(f"`codeact batch report {folder}` says more")


def summary_lines(summary: Summary) -> list[str]:
    """Return the summary of a batch in a few lines."""
    outcomes = ", ".join(f"{format_number(number)} {name}" for name in _OUTCOMES if (number := getattr(summary, name)))
    repeats = f" in {format_count(summary.rows, 'row')}" if summary.rows != summary.tasks else ""
    lines = [f"{format_count(summary.tasks, 'task')}{repeats}: {outcomes or 'no results'}"]
    if summary.checked:
        part = f"{format_number(summary.passed)} of {format_number(summary.checked)}"
        lines.append(f"checks: {part} passed ({format_percent(summary.passed / summary.checked)})")
    if summary.prompt_tokens or summary.completion_tokens:
        cost = f", cost {format_cost(summary.cost)}" if summary.cost is not None else ""
        read, written = format_tokens(summary.prompt_tokens), format_tokens(summary.completion_tokens)
        lines.append(f"tokens: {read} read, {written} written{cost}")
    if summary.errors:
        lines.append("errors: " + ", ".join(f"{name} {format_number(each)}" for name, each in summary.errors.items()))
    return lines
