"""Reports: the results of a batch, and the differences between two batches, task by task."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from autogen_codeact.batch.folder import MANIFEST
from autogen_codeact.batch.index import Results
from autogen_codeact.batch.summary import MAX_UNSUCCESSFUL, Group, Percentiles, Summary, summary_of
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.formatting import format_percent

SHOWN = 20
MAX_MANIFEST = 16 * 1024 * 1024
MAX_VALUE = 200


class Change(BaseModel):
    """A task that is better or worse in the second batch.

    Args:
        first: Part of its repetitions that passed in the first batch.
    """

    id: str
    first: float
    second: float


class Comparison(BaseModel):
    """How two batches differ.

    Args:
        first: Summary of the first batch.
        second: Summary of the second one.
        measure: "passed", or "completed" if neither batch has checks: then a task that has an answer counts as passed.
        newly_passed: Tasks that are better in the second batch: without repetitions, those that pass only there.
        newly_failed: Tasks that are worse in it.
        unchanged: Tasks that passed as often in both.
        not_comparable: Tasks without a result to compare in one of them: an error ended them, or their check, or they are not
            among its tasks.
        configuration: What differs between the configurations, by name: the first batch's value and the second one's.
    """

    first: Summary
    second: Summary
    measure: Literal["passed", "completed"] = "passed"
    newly_passed: list[Change] = Field(default_factory=list)
    newly_failed: list[Change] = Field(default_factory=list)
    unchanged: int = 0
    not_comparable: list[str] = Field(default_factory=list)
    configuration: dict[str, tuple[Any, Any]] = Field(default_factory=dict)


def compare(first: Path | str, second: Path | str) -> Comparison:
    """Compare two batches task by task. It blocks while the rows are read."""
    with closing(Results(first)) as before, closing(Results(second)) as after:
        found = Comparison(first=summary_of(before), second=summary_of(after))
        if not found.first.checked and not found.second.checked:
            found.measure = "completed"
        for name, one in before.rates(found.measure):
            two = after.rate(name, found.measure)
            if one is None or two is None:
                found.not_comparable.append(name)
            elif one == two:
                found.unchanged += 1
            else:
                better = found.newly_passed if one < two else found.newly_failed
                better.append(Change(id=name, first=one, second=two))
        found.not_comparable += (name for name, _ in after.rates(found.measure) if not before.logs(name))
    configurations = _configuration(before.path), _configuration(after.path)
    for name in sorted({**configurations[0], **configurations[1]}):
        values = configurations[0].get(name), configurations[1].get(name)
        if values[0] != values[1]:
            found.configuration[name] = values
    return found


def _configuration(results: Path) -> dict[str, Any]:
    """Return the configuration in the manifest; a folder without a readable one has none."""
    try:
        with open(results.with_name(MANIFEST), "rb") as file:
            configuration = json.loads(file.read(MAX_MANIFEST))["configuration"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return configuration if isinstance(configuration, dict) else {}


# Text


def summary_text(summary: Summary) -> str:
    """Return a summary as Markdown, which can be read as it is."""
    lines = _table(["", "batch"], [[name, value] for name, value in _facts(summary)])
    for title, counts in (("Errors of tasks", summary.errors), ("Attempts that were repeated", summary.failures)):
        if counts:
            lines += ["", f"## {title}", "", *_table(["error", "count"], [[name, n] for name, n in counts.items()])]
    if summary.unsuccessful:
        some = " (the first ones)" if len(summary.unsuccessful) == MAX_UNSUCCESSFUL else ""
        rows = [
            [f"{row.id} (repeat {row.repeat})" if row.repeat > 1 else row.id, row.outcome, row.reason, row.log or "-"]
            for row in summary.unsuccessful
        ]
        table = _table(["task", "outcome", "reason", "run"], rows)
        lines += ["", f"## Not passed or without an answer{some}", "", *table]
    if summary.groups:
        lines += ["", f"## By {_plain(summary.by or '')}", "", *_groups(summary.groups)]
    return "\n".join(lines) + "\n"


def comparison_text(found: Comparison, shown: int = SHOWN) -> str:
    """Return a comparison as Markdown, which can be read as it is.

    Args:
        shown: How many tasks of each list are named. Default 20.
    """
    facts = zip(_facts(found.first), _facts(found.second), strict=True)
    lines = _table(["", "first", "second"], [[name, one, two] for (name, one), (_, two) in facts])
    lines += ["", "## Task by task", ""]
    if found.measure == "completed":
        lines += ["Neither batch has checks: a task with an answer counts as passed.", ""]
    counts: list[list[Any]] = [
        ["newly passed", len(found.newly_passed)],
        ["newly failed", len(found.newly_failed)],
        ["unchanged", found.unchanged],
        ["not comparable", len(found.not_comparable)],
    ]
    lines += _table(["tasks", "count"], counts)
    for title, changes in (("Newly passed", found.newly_passed), ("Newly failed", found.newly_failed)):
        if changes:
            rows = [[each.id, _percent(each.first), _percent(each.second)] for each in changes[:shown]]
            lines += ["", f"## {title}", "", *_table(["task", "first", "second"], rows), *_more(changes, shown)]
    if names := found.not_comparable:
        lines += ["", "## Not comparable", "", *(f"- {_plain(name)}" for name in names[:shown]), *_more(names, shown)]
    if found.configuration:
        rows = [[name, _value(one), _value(two)] for name, (one, two) in found.configuration.items()]
        lines += ["", "## Configuration", "", *_table(["changed", "first", "second"], rows)]
    return "\n".join(lines) + "\n"


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what both kinds of report show of a batch."""
    rate = "-"
    if summary.pass_rate is not None and summary.pass_rate_interval is not None:
        low, high = summary.pass_rate_interval
        rate = f"{_percent(summary.pass_rate)} ({_percent(low)} to {_percent(high)})"
    facts = [
        ("tasks", f"{summary.tasks:,}"),
        ("rows", f"{summary.rows:,}"),
        *((name, f"{getattr(summary, name):,}") for name in ("completed", "stopped", "failed", "invalid")),
        ("passed", f"{summary.passed:,} of {summary.checked:,}" if summary.checked else "-"),
        ("pass rate (95% interval)", rate),
    ]
    at = [f"{_percent(value)} (k = {k})" for k, value in summary.pass_at.items() if k in (1, max(summary.pass_at))]
    facts += [
        ("pass@k", ", ".join(at) if summary.repeats > 1 and at else "-"),
        ("steps", f"{summary.steps:,}"),
        ("model calls", f"{summary.model_calls:,}"),
        ("tokens: prompt, completion", f"{summary.prompt_tokens:,}, {summary.completion_tokens:,}"),
        ("cost", "-" if summary.cost is None else f"{summary.cost:.4f}"),
        ("wall time", _seconds(summary.wall_seconds)),
        ("seconds a task: median, 90%, 99%, max", _percentiles(summary.seconds_percentiles)),
        ("steps a task: median, 90%, 99%, max", _percentiles(summary.steps_percentiles)),
    ]
    return facts


def _percentiles(found: Percentiles | None) -> str:
    return "-" if found is None else ", ".join(f"{value:.3g}" for value in (found.p50, found.p90, found.p99, found.max))


def _groups(groups: dict[str, Group]) -> list[str]:
    rows = [
        [name, g.rows, g.completed, f"{g.passed} of {g.checked}", _percent(g.pass_rate)] for name, g in groups.items()
    ]
    return _table(["value", "rows", "completed", "passed", "pass rate"], rows)


def _table(header: list[str], rows: list[list[Any]]) -> list[str]:
    """Return a Markdown table with columns of equal width."""
    cells = [header, *([_plain(str(cell)).replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _more(items: list[Any], shown: int) -> list[str]:
    return ["", f"… and {len(items) - shown:,} more (--json lists all)"] if len(items) > shown else []


def _plain(text: str) -> str:
    return printable(text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…")


def _value(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)


def _percent(rate: float | None) -> str:
    return "-" if rate is None else format_percent(rate)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
