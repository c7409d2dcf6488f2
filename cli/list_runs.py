"""`codeact runs`: the runs in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from rich.cells import cell_len, set_cell_size

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.output import print_json, printable
from autogen_codeact.runs import LogLocked, RunSummary, UnreadableRun, list_runs
from autogen_codeact.runs.adopt import adopt_run
from autogen_codeact.runs.store import find_run, runs_folder
from autogen_codeact.sandbox.formatting import format_count
from autogen_codeact.sandbox.result import format_duration

MAX_TASK = 60
_COLUMNS = ("RUN", "STARTED (UTC)", "OUTCOME", "STEPS", "TOKENS", "TIME", "TASK")
_NARROWER = (
    *(("RUN", 16), ("TASK", 16), ("TOKENS", 0), ("STEPS", 0), ("TIME", 0), ("STARTED (UTC)", 0)),
    *(("TASK", 8), ("RUN", 3), ("TASK", 3), ("OUTCOME", 3)),
)
"""What is done while a row is wider than the terminal, in this order: to which width a column is cut; 0 leaves it out."""


def print_runs(folder: Path | None, *, as_json: bool) -> int:
    """Print the runs in a folder, the latest first."""
    found = _default_runs() if folder is None else list_runs(folder)
    runs = [each for each in found if isinstance(each, RunSummary)]
    unreadable = [each for each in found if isinstance(each, UnreadableRun)]
    if as_json:
        for each in found:
            print_json(_to_object(each))
    elif runs:
        _print_table([_COLUMNS, *map(_row, runs)])
    elif not found and folder is None:
        say(f"no runs in {printable(str(runs_folder()))}: `codeact run` keeps its run there")
    elif not found:
        say(f"no runs in {printable(str(folder))}: `codeact run --save {printable(str(folder))}/NAME` keeps one")
    for each in unreadable:
        say(each.reason)
    return 1 if unreadable else 0


def adopt(run: str) -> int:
    """Make a run one of the user's own."""
    path = find_run(run)
    try:
        adopt_run(path)
    except (LogLocked, OSError) as error:
        raise CommandError(f"{path} can't be adopted: {error}") from error
    say(f"{printable(str(path))} is one of your own runs now")
    return 0


def _default_runs() -> list[RunSummary | UnreadableRun]:
    folder = runs_folder()
    return list_runs(folder) if folder.exists() else []


def _to_object(run: RunSummary | UnreadableRun) -> dict[str, Any]:
    fields = asdict(run) | {"path": str(run.path)}
    if isinstance(run, UnreadableRun):
        return {"outcome": "unreadable", **fields}
    return fields | {"started": run.started.isoformat(), "seconds": round(run.seconds, 3)}


def _row(run: RunSummary) -> tuple[str, ...]:
    return (
        _one_line(run.path.name, MAX_TASK),
        f"{run.started:%Y-%m-%d %H:%M:%S}",
        f"{run.outcome}, {format_count(run.gaps, 'gap')}" if run.gaps else run.outcome,
        f"{run.steps:,}",
        f"{run.tokens:,}",
        format_duration(run.seconds),
        _one_line(run.task, MAX_TASK),
    )


def _one_line(text: str, limit: int) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = _fit(
        {name: max(map(cell_len, cells)) for name, cells in zip(_COLUMNS, zip(*rows, strict=True), strict=True)}
    )
    for row in rows:
        cells = [_cell(cell, name, widths[name]) for name, cell in zip(_COLUMNS, row, strict=True) if widths[name]]
        print("  ".join(cells).rstrip())  # noqa: T201 - it is the output


def _fit(widths: dict[str, int]) -> dict[str, int]:
    """Return the widths with which a row is one line of the terminal; 0 for a column that is left out."""
    limit = get_terminal_size((0, 0)).columns
    fitting = dict(widths)
    for name, least in _NARROWER if limit else ():
        spare = limit - sum(width + 2 for width in fitting.values() if width) + 2
        if spare < 0:
            fitting[name] = max(min(least, fitting[name]), fitting[name] + spare) if least else 0
        elif spare:  # a column that was left out was wider than what was missing
            fitting["TASK"] = min(widths["TASK"], fitting["TASK"] + spare)
    return fitting


def _cell(text: str, name: str, width: int) -> str:
    if cell_len(text) > width:
        return set_cell_size(f"{set_cell_size(text, width - 1).rstrip()}…", width)
    return text.rjust(width) if name in ("STEPS", "TOKENS", "TIME") else set_cell_size(text, width)
