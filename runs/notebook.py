"""Other forms of a run: a notebook for Jupyter, one JSON object, or the files that its code has made."""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from autogen_codeact.agents.extraction import extract_code_blocks
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import BlockFinished, BlockStarted, MessageLogged
from autogen_codeact.runs.folder import MemoryLimit
from autogen_codeact.runs.reader import Gap, RawEvent, Run, UnknownEvent
from autogen_codeact.runs.results import StoredFile
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.types.displays import DOCUMENTS, FIGURES, TEXT, Display
from codeact_sandbox.types.filenames import MAX_DEPTH, printable, printable_text, safe_name
from codeact_sandbox.types.protected_names import ProtectedNameError
from codeact_sandbox.types.result import ErrorInfo, Result, written_by_code
from codeact_sandbox.types.text import apply_carriage_returns

_TYPES = (TEXT, *FIGURES, *DOCUMENTS)
"""Types of displays that are kept. JavaScript is none of them; Jupyter cleans HTML that it does not trust."""
_TRACEBACK = "Traceback (most recent call last):\n"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FENCE = re.compile(r"[\s>*+\d.)-]*(`{3,}|~{3,})")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

Cell = dict[str, Any]
_HIDDEN = ("ModelClientStreamingChunkEvent", "CodeExecutionEvent")  # messages that other events repeat
MAX_UNDER_WAY = 8
MAX_CELL = 6 * 1024 * 1024
"""Bytes of memory that the text of a cell may take; what it is made into takes many times as much."""
logger = logging.getLogger("autogen_codeact")
_MAX_NAMED = 20
MAX_FILES = 50_000  # names of files in a log; a workspace has at most 10,000


def markdown_cell(text: str) -> Cell:
    """Return a cell with words."""
    return {"cell_type": "markdown", "metadata": {}, "source": _clean(text)}


def code_cell(code: str, language: str, number: int | None, outputs: Sequence[Cell] = ()) -> Cell:
    """Return a cell with code; code in other languages than Python begins with the magic that runs it."""
    magic = {"python": "", "bash": "%%bash\n", "sh": "%%sh\n"}.get(language, f"%%script {printable(language)}\n")
    return {
        "cell_type": "code",
        "execution_count": number,
        "metadata": {},
        "outputs": list(outputs),
        "source": f"{magic}{_clean(code).rstrip()}",
    }


def outputs_of(result: Result, number: int) -> list[Cell]:
    """Return a block's result as a notebook's outputs."""
    text = _clean(apply_carriage_returns(written_by_code(result)))
    text, failure = _split_failure(text, result)
    text, value = _split_value(text, result.value_repr)
    outputs: list[Cell] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    displays = [{"output_type": "display_data", **_forms(display)} for display in result.displays]
    if value is not None:
        # The last expression's value can be a display, too.
        forms = displays.pop() if displays and displays[-1]["data"].get(TEXT) == value else {"data": {TEXT: value}}
        displays.append({"metadata": {}, **forms, "output_type": "execute_result", "execution_count": number})
    return outputs + displays + failure


def _split_failure(text: str, result: Result) -> tuple[str, list[Cell]]:
    """Split the output into what came before the traceback, and the failure as a notebook has it."""
    if result.outcome == "ok" and result.exit_code == 0:
        return text, []
    name, message = str(result.outcome), f"exit code {result.exit_code}"
    traceback: list[str] = []
    if result.error is not None:
        name, message = result.error.type, result.error.message
        before, header, after = text.rpartition(_TRACEBACK)
        if header:
            text, traceback = before, f"{header}{after}".splitlines()
    name, message = printable(name), _clean(message)
    lines = traceback or [f"{name}: {message}"]
    return text, [{"output_type": "error", "ename": name, "evalue": message, "traceback": lines}]


def _split_value(text: str, value: str | None) -> tuple[str, str | None]:
    """Split the output into what was printed and the last expression's value, which ends it."""
    value = _clean(value) if value is not None else None
    if value and f"\n{text.rstrip()}".endswith(f"\n{value.rstrip()}"):
        return text.rstrip().removesuffix(value.rstrip()), value
    return text, None


def _forms(display: Display) -> Cell:
    data = {kind: _encoded(display.data[kind]) for kind in _TYPES if kind in display.data}
    metadata = {kind: display.metadata[kind] for kind in data if isinstance(display.metadata.get(kind), Mapping)}
    return {"metadata": metadata, "data": data or {TEXT: printable(display.name)}}


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _clean(value) if isinstance(value, str) else value


def words_beside_code(text: str, codes: Collection[str]) -> str:
    """Return a model's message without the blocks that have cells of their own."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    separate = {code.strip() for code in codes}
    for block in reversed(extract_code_blocks(text)):
        first, last = block.line - 2, block.line - 1 + len(block.code.splitlines())
        fences = [lines[at] for at in (first, last) if 0 <= at < len(lines)]
        if block.code.strip() in separate and len(fences) == 2 and all(map(_FENCE.match, fences)):
            del lines[first : last + 1]
    return "\n".join(lines).strip()


def to_json(value: Any) -> str:
    """Return a value as JSON that every program reads: numbers that are none in JSON, such as NaN, become null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def _clean(text: str) -> str:
    """Escape control characters, except line ends and tabs; colours are removed."""
    return printable_text(_COLOURS.sub("", text))


def write_notebook(cells: Iterable[Cell], file: TextIO) -> int:
    """Write a notebook cell by cell, so that a long run is never held in memory."""
    count = 0
    file.write('{\n"cells": [')
    for count, cell in enumerate(cells, 1):
        file.write(f"{',' if count > 1 else ''}\n{to_json({'id': f'cell-{count}', **cell})}")
    file.write(f'\n],\n"metadata": {json.dumps(_METADATA)},\n"nbformat": 4,\n"nbformat_minor": 5\n}}\n')
    return count


def export_notebook(run: Run, file: TextIO) -> None:
    """Write a run as a notebook of Jupyter (nbformat 4.5): words, code, what it printed and showed.

    Args:
        run: The run.
        file: Where to.

    Raises:
        RunError: The log can't be read.
    """
    write_notebook(_Cells(run).all(), file)


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
    if isinstance(event, UnknownEvent):
        return event.data
    return dict(vars(event)) if isinstance(event, Gap) else dict(event.model_dump(mode="json", exclude={"stored"}))


class _Cells:
    """The cells of a notebook for a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._count = 0
        self._under_way: dict[tuple[str, int], BlockStarted] = {}

    def all(self) -> Iterator[Cell]:
        """Return the cells."""
        started = self._run.started
        yield markdown_cell(f"# {started.name}, {started.time:%Y-%m-%d %H:%M} UTC")
        for raw in self._run.raw_events():
            event = self._run.parse(replace(raw, budget=MemoryLimit(MAX_CELL))) if isinstance(raw, RawEvent) else raw
            match event:
                case MessageLogged():
                    yield from self._words(event.message)
                case BlockStarted():
                    self._under_way[event.agent, event.number] = event
                    if len(self._under_way) > MAX_UNDER_WAY:  # of a log that starts blocks only
                        yield from self._code(self._under_way.pop(next(iter(self._under_way))), None)
                case BlockFinished():
                    begun = self._under_way.pop((event.agent, event.number), None)
                    if begun is not None:
                        yield from self._code(begun, event)
                case Gap():
                    yield markdown_cell(f"*A part of the log can't be read: {event.reason}.*")
        for begun in self._under_way.values():
            yield from self._code(begun, None)

    def _words(self, message: Mapping[str, Any]) -> Iterator[Cell]:
        metadata, content = message.get("metadata"), message.get("content")
        shown_by_code = isinstance(metadata, dict) and "exit_code" in metadata
        if message.get("type") in _HIDDEN or shown_by_code:
            return
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        if message.get("type") == "CodeGenerationEvent":
            blocks = message.get("code_blocks")
            codes = (
                [block.get("code") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
            )
            text = words_beside_code(text, [code for code in codes if isinstance(code, str)])
        if text.strip():
            yield markdown_cell(f"**{message.get('source')}**\n\n{text}")

    def _code(self, begun: BlockStarted, finished: BlockFinished | None) -> Iterator[Cell]:
        for block in begun.blocks[:-1]:
            self._count += 1
            yield code_cell(block.code, block.language, self._count)
        for block in begun.blocks[-1:]:
            self._count += 1
            yield code_cell(block.code, block.language, self._count, self._outputs(finished))

    def _outputs(self, finished: BlockFinished | None) -> list[Cell]:
        if finished is None or finished.result is None:
            error = finished.error if finished is not None else None
            error = error or ErrorInfo(type="Interrupted", message="the run ended while this code ran")
            return outputs_of(Result(1, "", outcome="error", error=error), self._count)
        try:
            result = self._run.result(finished.result)
        except RunFileError as problem:
            bare = finished.result.model_copy(update={"displays": [], "tool_calls": []})
            result = self._run.result(bare)
            result.output += f"\n[{problem}]"
        if not isinstance(result, ExecutionResult):
            result = ExecutionResult(result.exit_code, result.output, outcome="error" if result.exit_code else "ok")
        return outputs_of(result, self._count)


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
