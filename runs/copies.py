"""Files that the code of a run has made, as far as its folder has copies of them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path, PurePosixPath

from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import BlockFinished
from autogen_codeact.runs.reader import RawEvent, Run
from autogen_codeact.runs.results import StoredFile
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.types.filenames import MAX_DEPTH, printable, safe_name
from codeact_sandbox.types.protected_names import ProtectedNameError

logger = logging.getLogger("autogen_codeact")
_MAX_NAMED = 20

MAX_FILES = 50_000  # names of files in a log; a workspace has at most 10,000


def kept_files(run: Run) -> dict[str, StoredFile]:
    """Return the last copy of each file that the code has made or changed, by its name in the workspace.

    Args:
        run: The run.

    Raises:
        RunError: The log can't be read.
    """
    files: dict[str, StoredFile] = {}
    for raw in run.raw_events():
        event = run.parse(raw) if isinstance(raw, RawEvent) and raw.name == "block_finished" else None
        if isinstance(event, BlockFinished) and event.result is not None:
            if len(files) > MAX_FILES:
                raise RunFileError(f"{run.folder.path} names more than {MAX_FILES:,} files of the workspace.")
            for artifact in event.result.artifacts:
                files.pop(artifact.name, None)  # an older copy is not what the file was at the end
                if artifact.file is not None and artifact.file.sha256 is not None:
                    files[artifact.name] = artifact.file
    for name in _replaced(list(files)):
        del files[name]
    return files


def _replaced(names: list[str]) -> set[str]:
    """Return the files that have become a folder, and those in a folder that has become a file; the last ones stay."""
    places = {name: place for place, name in enumerate(names)}
    pairs = ((name, str(parent)) for name in names for parent in PurePosixPath(name).parents if str(parent) in places)
    return {min(pair, key=places.__getitem__) for pair in pairs}


def export_files(run: Run, folder: Path) -> list[str]:
    """Write the files that the code of a run has made, under the names that they had.

    Protected names, such as `.git`, are left out as they are in a workspace, and named in a warning.

    Args:
        run: The run.
        folder: A new or an empty folder.

    Returns:
        The names of those that were written.

    Raises:
        FileExistsError: The folder is not empty.
        RunFileError: A file is missing or was changed, or its name leads out of the folder.
        OSError: A file can't be written.
    """
    files = {_checked(name): file for name, file in kept_files(run).items()}
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: give a new folder.")
    workspace = Workspace(
        folder, max_files=MAX_DEPTH * (len(files) + 1), max_file_bytes=sys.maxsize, max_total_bytes=sys.maxsize
    )
    written, left_out = [], []
    for name, file in files.items():
        try:
            workspace.store(name, 0o644, [run.read_file(file)])
        except ProtectedNameError:
            left_out.append(name)
        else:
            written.append(name)
    if left_out:
        names = ", ".join(map(printable, left_out[:_MAX_NAMED])) + (" …" if len(left_out) > _MAX_NAMED else "")
        logger.warning("Not written, because programs on the host act on such files automatically: %s", names)
    return written


def _checked(name: str) -> str:
    try:
        return safe_name(name)
    except ValueError as error:
        raise RunFileError(f"The log names a file that is not written: {error}") from None
