"""Files that the code of a run has made, as far as its folder has copies of them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import BlockFinished
from autogen_codeact.runs.reader import RawEvent, Run
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.sandbox.files.filenames import safe_name

MAX_FILES = 50_000
"""Names of files in a log; a workspace has at most 10,000."""


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

    Args:
        run: The run.
        folder: A new or an empty folder.

    Returns:
        The names.

    Raises:
        FileExistsError: The folder is not empty.
        RunFileError: A file is missing or was changed, or its name leads out of the folder.
        OSError: A file can't be written.
    """
    files = {_checked(name): file for name, file in kept_files(run).items()}
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: give a new folder.")
    for name, file in files.items():
        data = run.read_file(file)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return list(files)


def _checked(name: str) -> str:
    try:
        return safe_name(name)
    except ValueError as error:
        raise RunFileError(f"The log names a file that is not written: {error}") from None
