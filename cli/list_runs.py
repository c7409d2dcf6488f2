"""`codeact runs`: the runs in a folder."""

from __future__ import annotations

from dataclasses import asdict
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.output import print_json, printable
from autogen_codeact.runs import LogLocked, RunSummary, UnreadableRun, list_runs
from autogen_codeact.runs.adopt import adopt_run
from autogen_codeact.runs.store import find_run, runs_folder
from autogen_codeact.sandbox.types.formatting import format_count
from autogen_codeact.sandbox.types.result import format_duration

MAX_TASK = 60
_COLUMNS = ("RUN", "STARTED (UTC)", "OUTCOME", "STEPS", "TOKENS", "TIME", "TASK")


def print_runs(folder: Path | None, *, as_json: bool) -> int:
    """Print the runs in a folder, the latest first."""
    found = _default_runs() if folder is None else list_runs(folder)
    runs = [each for each in found if isinstance(each, RunSummary)]
    unreadable = [each for each in found if isinstance(each, UnreadableRun)]
    if as_json:
        for each in found:
            print_json(_to_object(each))
    elif runs:
        _print_table(list(map(_row, runs)))
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
    """Print one line for each run; a narrow terminal has fewer columns, and shorter names and tasks."""
    width = get_terminal_size((10_000, 0)).columns
    left_out = () if width >= 100 else ("TOKENS",) if width >= 80 else ("STARTED (UTC)", "STEPS", "TOKENS", "TIME")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for name in _COLUMNS:
        if name not in left_out:
            numbers = name in ("STEPS", "TOKENS", "TIME")
            table.add_column(name, justify="right" if numbers else "left", no_wrap=name not in ("RUN", "TASK"))
    for row in rows:
        cells = (cell for cell, name in zip(row, _COLUMNS, strict=True) if name not in left_out)
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))  # noqa: T201 - it is the output
