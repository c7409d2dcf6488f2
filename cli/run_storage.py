"""The folder in which `codeact run` and `codeact chat` keep a run, its name in messages, and the removal of old runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.plan import Plan
from autogen_codeact.runs.store import EVENTS, LAST, MAX_BYTES, new_run_folder, prune_runs, runs_folder
from autogen_codeact.sandbox.types.formatting import format_count

SIZE_VARIABLE = "CODEACT_RUNS_SIZE"
PRUNE_S = 10.0
"""Seconds that a disk may take for removing old runs, after which the command ends without it."""


def choose_run_folder(task: str) -> Path | None:
    """Return a new folder for a run; if that is impossible, print why and return None."""
    try:
        return new_run_folder(task)
    except (RunFolderError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        say(f"the run is not kept ({where}{why}); --save FOLDER keeps it elsewhere, --no-save says that it need not be")
        return None


def max_total_size() -> int:
    """Return how many bytes all kept runs together may have: `CODEACT_RUNS_SIZE`, or 2 GiB."""
    from autogen_codeact.sandbox.types.limits import parse_size  # noqa: PLC0415 - it imports pydantic

    text = os.environ.get(SIZE_VARIABLE, "").strip()
    try:
        return parse_size(text) if text else MAX_BYTES
    except ValueError as error:
        raise CommandError(f"{SIZE_VARIABLE}: {error}.") from None


def has_log(run: Path) -> bool:
    """Return whether a run has a log."""
    return (run / EVENTS).is_file()


def run_name(run: Path) -> str:
    """Return what a user types for a run: its name in the folder of all runs, or its path."""
    try:
        return run.name if run.parent == runs_folder() else str(run)
    except RunFolderError:
        return str(run)


def short_run_name(run: Path) -> str:
    """Return the shortest that a user can type right after a run: `last`, or its path."""
    return LAST if run_name(run) != str(run) else str(run)


def print_run_location(run: Path) -> None:
    """Print where a run that has just ended is kept, and the commands that show it."""
    place = "in" if run_name(run) == str(run) else "as"
    hint = short_run_name(run)
    say(f"kept {place} {run_name(run)}: `codeact show {hint}` prints it, `codeact view {hint}` opens it")


def remove_oldest(run: Path, max_size: int) -> None:
    """Remove the oldest runs if all together are too large, and print how many were removed."""
    folder, removed = run.parent, list[Path]()

    def work() -> None:
        removed.extend(prune_runs(folder, max_size, keep=run))

    # In a thread that nobody waits for at the end: a disk of the network may not answer.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PRUNE_S)
    if removed:
        runs = f"{len(removed)} oldest runs" if len(removed) > 1 else "oldest run"
        say(f"removed the {runs}: more than {format_limit(max_size)} were kept ({SIZE_VARIABLE} sets another limit)")


def format_limit(size: int) -> str:
    """Format a limit: "2 GB", "512 MB"; powers of 1024, as in options."""
    for unit, name in ((1024**3, "GB"), (1024**2, "MB"), (1024, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return format_count(size, "byte")


def rebuilds(plan: Plan, path: Path, *, wanted: bool, trust: bool) -> bool:
    """Return whether the code of the log runs again to rebuild sessions; say so if the log is not the user's own."""
    if plan.chain is not None:
        return wanted
    unless = "" if trust or not wanted else ", and the session begins empty (--trust rebuilds it)"
    say(f"{path} was made elsewhere, copied or changed: you are asked before code runs{unless}")
    if not trust:
        say(f"`codeact runs adopt {path}` makes it one of your own runs")
    return wanted and trust
