"""Other forms of a run: a notebook, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TextIO

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.budget import Budget
from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import BlockFinished, BlockStarted, MessageLogged
from autogen_codeact.runs.notebook import (
    Cell,
    code_cell,
    markdown_cell,
    outputs_of,
    to_json,
    words_beside_code,
    write_notebook,
)
from autogen_codeact.runs.reader import Gap, RawEvent, Run, UnknownEvent
from codeact_sandbox.types.result import ErrorInfo, Result

_HIDDEN = ("ModelClientStreamingChunkEvent", "CodeExecutionEvent")
"""Messages that other events repeat."""
MAX_UNDER_WAY = 8
MAX_CELL = 6 * 1024 * 1024
"""Bytes of memory that the text of a cell may take; what it is made into takes many times as much."""


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
            event = self._run.parse(replace(raw, budget=Budget(MAX_CELL))) if isinstance(raw, RawEvent) else raw
            match event:
                case MessageLogged():
                    yield from self._words(event.message)
                case BlockStarted():
                    self._under_way[event.agent, event.number] = event
                    if len(self._under_way) > MAX_UNDER_WAY:  # of a log that starts blocks only
                        yield from self._code(self._under_way.pop(next(iter(self._under_way))), None)
                case BlockFinished():
                    if begun := self._under_way.pop((event.agent, event.number), None):
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
