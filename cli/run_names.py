"""What a user types for a run that is kept."""

from pathlib import Path

from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.store import EVENTS, runs_folder


def has_log(run: Path) -> bool:
    """Return whether a run has a log."""
    return (run / EVENTS).is_file()


def run_name(run: Path) -> str:
    """Return what a user types for a run: its name in the folder of all runs, or its path."""
    try:
        return run.name if run.parent == runs_folder() else str(run)
    except RunFolderError:
        return str(run)
