"""The default folder of runs; imports nothing slow, so that every command can use it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from autogen_codeact.runs.errors import RunFolderError
from codeact_sandbox.files.private_folders import state_folder
from codeact_sandbox.files.regular_files import open_regular

EVENTS = "events.jsonl"  # the log in a run's folder
LAST = "last"  # what a user says instead of a name for the run that was started last
_MAX_SLUG = 32
_NAME = re.compile(r"\d{8}-\d{6}-")


def runs_folder() -> Path:
    """Return the folder of the runs that were kept without a path: `$XDG_STATE_HOME/autogen-codeact/runs`."""
    try:
        return state_folder() / "runs"
    except RuntimeError:
        raise RunFolderError("This user has no home folder: set XDG_STATE_HOME to a folder for runs.") from None


def new_run_folder(task: str) -> Path:
    """Return a path for a new run, and make the folder around it, which only this user can read."""
    folder = runs_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "it can't be written", str(folder))
    while True:
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{_slug(task)}-{secrets.token_hex(2)}"
        if not os.path.lexists(folder / name):
            return folder / name


def _slug(task: str) -> str:
    """Return the first words of a text as lower-case ASCII with hyphens."""
    plain = unicodedata.normalize("NFKD", task[:1000]).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    found = re.match(rf".{{1,{_MAX_SLUG}}}(?![a-z0-9])|.{{{_MAX_SLUG}}}", "-".join(words))
    return found[0] if found is not None else "run"


def find_run(text: str, *, is_chat: Callable[[Path], bool] | None = None) -> Path:
    """Return the folder of the run that a user means: by path, by name or the beginning of one, or by `last` (run, or chat)."""
    if text == LAST:
        return _last(is_chat)
    path = Path(text)
    if os.sep in text or os.path.lexists(path):
        return path
    folder = runs_folder()
    if text not in ("", ".", "..") and os.path.lexists(folder / text):
        return folder / text
    found = [run for run in _runs_in(folder) if text and run.name.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise RunFolderError(
            f"The names of {len(found)} runs begin with {text}: give more of the name. `codeact runs` lists them."
        )
    raise RunFolderError(
        f"There is no run {text}, neither here nor in {folder}. `codeact runs` lists those that are kept."
    )


def run_name(run: Path) -> str:
    """Return what a user types for a run: its name in the folder of all runs, or its path."""
    try:
        return run.name if run.parent == runs_folder() else str(run)
    except RunFolderError:
        return str(run)


def has_log(run: Path) -> bool:
    return (run / EVENTS).is_file()


def _last(is_chat: Callable[[Path], bool] | None) -> Path:
    folder = runs_folder()
    for run in _runs_in(folder):
        if is_chat is None or is_chat(run):
            return run
    kind, command = ("run", "codeact run") if is_chat is None else ("chat", "codeact chat")
    raise RunFolderError(f"There is no last {kind}: {folder} has none. `{command}` keeps its {kind} there.")


def is_being_written(path: Path) -> bool:
    """Return whether a process writes the log of a run now; it holds a lock on it until it ends, however it ends."""
    with suppress(OSError), open_regular(path / EVENTS) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder, by the time in their names, the latest first; symbolic links are left out."""
    with suppress(OSError):
        runs = [each for each in folder.iterdir() if not each.is_symlink() and os.path.lexists(each / EVENTS)]
        return sorted(runs, key=_began, reverse=True)
    return []


def _began(run: Path) -> tuple[str, float]:
    return run.name[:15] if _NAME.match(run.name) else "", (run / EVENTS).lstat().st_mtime
