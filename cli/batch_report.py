"""What a batch has come to, as text."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from autogen_codeact.cli.batch_words import format_count, format_tokens
from autogen_codeact.cli.terminal import Terminal

_OUTCOMES = ("completed", "stopped", "failed", "invalid")


def summary_object(folder: Path) -> dict[str, Any]:
    """Sum up the results of a batch."""
    last: dict[tuple[str, int], dict[str, Any]] = {}
    with open(folder / "results.jsonl", "rb") as file:
        for line in file:
            row = json.loads(line)
            last[row["id"], row["repeat"]] = {
                name: row[name]
                for name in ("outcome", "passed", "prompt_tokens", "completion_tokens", "cost", "error_class")
            }
    rows = last.values()
    outcomes = Counter(row["outcome"] for row in rows)
    costs = [row["cost"] for row in rows if row["cost"] is not None]
    return {
        "rows": len(rows),
        **{name: outcomes[name] for name in _OUTCOMES},
        "checked": sum(row["passed"] is not None for row in rows),
        "passed": sum(bool(row["passed"]) for row in rows),
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "completion_tokens": sum(row["completion_tokens"] for row in rows),
        "cost": sum(costs) if costs else None,
        "errors": dict(Counter(row["error_class"] for row in rows if row["error_class"]).most_common()),
    }


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    """Print the summary of a batch for a person."""
    terminal = Terminal()
    for line in summary_lines(summary):
        terminal.line(line)
    terminal.line(f"results: {folder / 'results.jsonl'}")


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary of a batch as text."""
    outcomes = ", ".join(f"{format_count(summary[name])} {name}" for name in _OUTCOMES if summary[name])
    number = summary["rows"]
    lines = [f"{format_count(number)} task{'s' * (number != 1)}: {outcomes}"]
    if summary["checked"]:
        rate = 100 * summary["passed"] / summary["checked"]
        lines.append(
            f"checks: {format_count(summary['passed'])} of {format_count(summary['checked'])} passed ({rate:.1f} %)"
        )
    if summary["prompt_tokens"] or summary["completion_tokens"]:
        cost = f", cost {summary['cost']:,.2f}" if summary["cost"] is not None else ""
        lines.append(
            f"tokens: {format_tokens(summary['prompt_tokens'])} read, {format_tokens(summary['completion_tokens'])} written{cost}"
        )
    if summary["errors"]:
        lines.append("errors: " + ", ".join(f"{name} {format_count(each)}" for name, each in summary["errors"].items()))
    return lines


def print_report(folder: Path, other: Path | None, *, as_json: bool) -> int:
    return 0
