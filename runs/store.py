"""The default folder of runs; imports nothing slow, so that every command can use it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
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
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word[:_MAX_SLUG]
        if len(longer) > _MAX_SLUG:
            break
        slug = longer
    return slug or "run"


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
    found = [run.path for run in _runs_in(folder) if text and run.path.name.startswith(text)]
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
    """Return whether a run has a log."""
    return (run / EVENTS).is_file()


def _last(is_chat: Callable[[Path], bool] | None) -> Path:
    folder = runs_folder()
    for run in sorted(_runs_in(folder), key=lambda run: (run.began, run.written), reverse=True):
        if is_chat is None or is_chat(run.path):
            return run.path
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


@dataclass(frozen=True)
class _Kept:
    """A folder with a log."""

    path: Path
    written: float

    @property
    def began(self) -> str:
        """When it began, as in the names that `new_run_folder` gives; for another name when it was last written."""
        if _NAME.match(self.path.name):
            return self.path.name[:15]
        return f"{datetime.fromtimestamp(self.written, UTC):%Y%m%d-%H%M%S}"


def _runs_in(folder: Path) -> Iterator[_Kept]:
    """Return the runs in a folder; none if there is no such folder. Symbolic links are left out."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    log = (folder / entry.name / EVENTS).lstat()
                    yield _Kept(folder / entry.name, log.st_mtime)
