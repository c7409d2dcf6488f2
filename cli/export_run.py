"""`codeact export`: a saved run as a notebook, as JSON, or its files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.runs import Run, export_files, export_json, export_notebook, load_run


def export_run(path: Path, *, notebook: Path | None, json_file: Path | None, files: Path | None) -> int:
    """Write a run to files.

    Args:
        path: Its folder.
        notebook: File for the notebook, or None.
        json_file: File for the JSON, or None.
        files: Folder for the files that the code has made, or None.

    Returns:
        0.

    Raises:
        CommandError: There is no file to write, or it can't be written.
        RunError: There is no run, or it can't be read.
    """
    if notebook is None and json_file is None and files is None:
        raise CommandError("Say what to write: --ipynb FILE, --json FILE or --files FOLDER.")
    run = load_run(path)
    if notebook is not None:
        _write(notebook, run, export_notebook)
    if json_file is not None:
        _write(json_file, run, export_json)
    if files is not None:
        _write_files(run, files)
    return 0


def _write_files(run: Run, folder: Path) -> None:
    try:
        names = export_files(run, folder)
    except FileExistsError as error:
        raise CommandError(str(error) if error.errno is None else f"{folder} is not a folder.") from error
    except OSError as error:
        raise CommandError(f"{folder} can't be written: {error.strerror}.") from error
    if not names:
        say("the run has kept no files of its code")


def _write(target: Path, run: Run, export: Callable[[Run, TextIO], None]) -> None:
    """Write a file as a whole or not at all."""
    if target.is_dir():
        raise CommandError(f"{target} is a folder: give the name of a file.")
    part: str | None = None
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        with open(descriptor, "w", encoding="ascii") as file:
            export(run, file)
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(file.fileno(), 0o666 & ~umask)
        os.replace(part, target)
        part = None
    except OSError as error:
        raise CommandError(f"{target} can't be written: {error.strerror}.") from error
    finally:
        if part is not None:
            os.unlink(part)
