"""`codeact export`: a saved run as a notebook, as a page, as JSON, or its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from autogen_codeact.cli.exit import CommandError, say, say_warnings
from autogen_codeact.cli.terminal import format_size
from autogen_codeact.runs import Run, export_files, export_json, export_notebook, load_run
from autogen_codeact.runs.atomic_file import atomic_text_file
from autogen_codeact.sandbox.types.formatting import format_count
from autogen_codeact.viewer.one_file import write_html


def export_run(
    path: Path, *, notebook: Path | None, page: Path | None, json_file: Path | None, files: Path | None
) -> int:
    """Write a run to files."""
    if notebook is None and page is None and json_file is None and files is None:
        raise CommandError("Say what to write: --html FILE, --ipynb FILE, --json FILE or --files FOLDER.")
    run = load_run(path)
    if notebook is not None:
        _write(notebook, run, export_notebook)
    if page is not None:
        _write(page, run, write_html)
    if json_file is not None:
        _write(json_file, run, export_json)
    if files is not None:
        _write_files(run, files)
    return 0


def _write_files(run: Run, folder: Path) -> None:
    say_warnings()
    try:
        names = export_files(run, folder)
    except FileExistsError as error:
        raise CommandError(str(error) if error.errno is None else f"{folder} is not a folder.") from error
    except OSError as error:
        raise CommandError(f"{folder} can't be written: {error.strerror}.") from error
    say(f"wrote {folder} ({format_count(len(names), 'file')})" if names else "the run has kept no files of its code")


def _write(target: Path, run: Run, export: Callable[[Run, TextIO], None]) -> None:
    """Write a file as a whole or not at all."""
    if target.is_dir():
        raise CommandError(f"{target} is a folder: give the name of a file.")
    try:
        with atomic_text_file(target) as file:
            export(run, file)
        say(f"wrote {target} ({format_size(target.stat().st_size)})")
    except OSError as error:
        raise CommandError(f"{target} can't be written: {error.strerror}.") from error
