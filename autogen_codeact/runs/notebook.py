"""Other forms of a run: a notebook for Jupyter, one JSON object, or the files that its code has made."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.reader import Gap, Run
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.runs.step_list import Step
from autogen_codeact.runs.step_parts import Content
from autogen_codeact.runs.text import terminal_text, visible
from autogen_codeact.runs.view import RunView
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.types.displays import DOCUMENTS, FIGURES, TEXT
from codeact_sandbox.types.filenames import MAX_DEPTH, printable, safe_name
from codeact_sandbox.types.protected_names import ProtectedNameError

_TYPES = (TEXT, *FIGURES, *DOCUMENTS)
"""Types of displays that are kept. Not JavaScript; Jupyter cleans HTML that it does not trust."""
_TRACEBACK = "Traceback (most recent call last):\n"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_SPOKEN = ("task", "message", "handoff", "decision", "model_call")

Cell = dict[str, Any]
logger = logging.getLogger("autogen_codeact")
_MAX_NAMED = 20
MAX_FILES = 50_000  # names of files in a log; a workspace has at most 10,000


def to_json(value: Any) -> str:
    """Return a value as JSON that every program reads: numbers that are none in JSON, such as NaN, become null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def export_notebook(run: Run, file: TextIO) -> None:
    """Write a run as a notebook of Jupyter (nbformat 4.5): words, code, what it printed and showed.

    Args:
        run: The run.
        file: Where to.

    Raises:
        RunError: The log can't be read.
    """
    file.write('{\n"cells": [')
    for number, cell in enumerate(_Cells(run).all(), 1):
        file.write(f"{',' if number > 1 else ''}\n{to_json({'id': f'cell-{number}', **cell})}")
    file.write(f'\n],\n"metadata": {json.dumps(_METADATA)},\n"nbformat": 4,\n"nbformat_minor": 5\n}}\n')


def export_json(run: Run, file: TextIO) -> None:
    """Write a run as one JSON object with its events, gaps included, as a list.

    Args:
        run: The run.
        file: Where to.

    Raises:
        RunError: The log can't be read.
    """
    file.write(f'{{"schema_version": {run.started.schema_version}, "events": [')
    for number, event in enumerate(run):
        separator = ",\n" if number else "\n"
        file.write(f"{separator}{to_json(_to_object(event))}")
    file.write("\n]}\n")


def _to_object(event: Any) -> dict[str, Any]:
    return dict(vars(event)) if isinstance(event, Gap) else dict(event.model_dump(mode="json"))


class _Cells:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._view = RunView(run).read_all()
        self._count = 0

    def all(self) -> Iterator[Cell]:
        """Return the cells."""
        started = self._run.started
        yield _words(f"# {started.name}, {started.time:%Y-%m-%d %H:%M} UTC")
        for step in self._view.steps:
            content = self._view.content(step)
            text = "\n\n".join(content[name] for name in ("thought", "text") if content.get(name))
            if step.kind == "gap":
                yield _words(f"*A part of the log can't be read: {text}.*")
            elif text.strip() and (step.kind in _SPOKEN or "code" in content):
                yield _words(f"**{step.agent}**\n\n{text}")
            yield from self._code(step, content)

    def _code(self, step: Step, content: Content) -> Iterator[Cell]:
        blocks = content.get("code", ())
        for place, block in enumerate(blocks, 1):
            self._count += 1
            language = block["language"]
            magic = {"python": "", "bash": "%%bash\n", "sh": "%%sh\n"}.get(
                language, f"%%script {printable(language)}\n"
            )
            yield {
                "cell_type": "code",
                "execution_count": self._count,
                "metadata": {},
                "outputs": self._outputs(step, content) if place == len(blocks) else [],
                "source": f"{magic}{visible(block['code']).rstrip()}",
            }

    def _outputs(self, step: Step, content: Content) -> list[Cell]:
        """Return a block's result as a notebook's outputs."""
        displays, problems = [], []
        for each in content.get("displays", ()):
            try:
                displays.append({"output_type": "display_data", **self._forms(each)})
            except RunFileError as problem:
                problems.append(f"\n[{problem}]")
        text = visible(terminal_text(content.get("output", "") + "".join(problems)))
        text, failure = _split_failure(text, step, content)
        text, value = _split_value(text, content.get("value"))
        outputs: list[Cell] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
        if value is not None:
            # The last expression's value can be a display, too.
            shown = bool(displays) and displays[-1]["data"].get(TEXT) == value
            forms = displays.pop() if shown else {"metadata": {}, "data": {TEXT: value}}
            displays.append({**forms, "output_type": "execute_result", "execution_count": self._count})
        return outputs + displays + failure

    def _forms(self, display: Content) -> Cell:
        files = {
            kind: StoredFile(**file) for kind, file in display["files"].items() if kind in _TYPES and file["sha256"]
        }
        forms = display["data"] | {kind: self._run.read_file(file) for kind, file in files.items()}
        data = {kind: _encoded(forms[kind]) for kind in _TYPES if kind in forms}
        metadata = {kind: each for kind, each in display["metadata"].items() if kind in data and isinstance(each, dict)}
        return {"metadata": metadata, "data": data or {TEXT: printable(display["name"])}}


def _words(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": visible(text)}


def _split_failure(text: str, step: Step, content: Content) -> tuple[str, list[Cell]]:
    """Split the output into what came before the traceback, and the failure as a notebook has it."""
    error = content.get("error") or ("Interrupted: the run ended while this code ran" if step.is_open else None)
    if error is None and step.outcome == "ok":
        return text, []
    name, message = str(step.outcome), f"exit code {content.get('exit_code')}"
    traceback: list[str] = []
    if error is not None:
        name, _, message = error.partition(": ")
        before, header, after = text.rpartition(_TRACEBACK)
        if header:
            text, traceback = before, f"{header}{after}".splitlines()
    name, message = printable(name), visible(message)
    lines = traceback or [f"{name}: {message}"]
    return text, [{"output_type": "error", "ename": name, "evalue": message, "traceback": lines}]


def _split_value(text: str, value: str | None) -> tuple[str, str | None]:
    """Split the output into what was printed and the last expression's value, which ends it."""
    value = visible(value) if value is not None else None
    if value and f"\n{text.rstrip()}".endswith(f"\n{value.rstrip()}"):
        return text.rstrip().removesuffix(value.rstrip()), value
    return text, None


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return visible(value) if isinstance(value, str) else value


def kept_files(run: Run) -> dict[str, StoredFile]:
    """Return the last copy of each file that the code has made or changed, by its name in the workspace.

    Args:
        run: The run.

    Raises:
        RunError: The log can't be read.
    """
    found = RunView(run).read_all().files
    if len(found) > MAX_FILES:
        raise RunFileError(f"{run.folder.path} names more than {MAX_FILES:,} files of the workspace.")
    # An older copy is not what the file was at the end.
    files = {name: file for name, file in found.items() if file is not None and file.sha256 is not None}
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
