"""Prints the messages of a turn while they arrive, and how code has changed files."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.base_agent import OUTPUT_CHUNK
from autogen_codeact.agents.outcome_summary import outcome_summary
from autogen_codeact.agents.reliable_client import BEGINS_AGAIN
from autogen_codeact.cli.answer_printer import AnswerPrinter
from autogen_codeact.cli.terminal import Terminal, shorten
from autogen_codeact.cli.transcript import Message, hints_in, remarks
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.differences import differing_lines
from autogen_codeact.sandbox.carriage_returns import apply_carriage_returns
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.formatting import format_count
from autogen_codeact.sandbox.result import format_duration, written_by_code

MAX_FILE_BYTES = 128 * 1024
MAX_FILES = 500
MAX_LINES = 60
_TOO_LONG = "[{count} more lines differ]"
_TOO_DIFFERENT = "[not shown: too much differs]"
_BINARY = "[not shown: it is not text, or too long]"


class ChatView:
    """Prints the messages of turns."""

    def __init__(self, terminal: Terminal, files: FileChanges | None, *, team: bool) -> None:
        self._terminal = terminal
        self._files = files
        self._team = team
        self._answer = AnswerPrinter(terminal)
        self._speaker = ""
        self._output = ""
        self._tokens = self._blocks = 0
        self._began = 0.0
        self.files_made: set[str] = set()
        """Names of the files that code has made or changed, as far as this machine has them."""

    def begin(self) -> None:
        """Begin a turn."""
        self._speaker, self._tokens, self._blocks, self._began = "", 0, 0, time.monotonic()

    async def before_question(self, code: str) -> None:
        """Print what came before a question about code, and the code itself if what comes from the agents may come later."""
        if self._team:
            self._answer.end()
            self._answer.add(f"{code}\n")
        self._answer.end()

    async def show(self, message: Message | TaskResult) -> None:
        """Print one message."""
        match message:
            case TaskResult():
                self.end_line()
            case ModelClientStreamingChunkEvent() if message.metadata.items() >= OUTPUT_CHUNK.items():
                self._answer.end()
                self._name(message.source)
                self._output += message.content
                self._terminal.output(message.content)
            case ModelClientStreamingChunkEvent(content=content) if content == BEGINS_AGAIN:
                self._answer.end()
                self._terminal.line(BEGINS_AGAIN.strip(), "yellow")
            case ModelClientStreamingChunkEvent():
                self._name(message.source)
                self._answer.add(message.content)
            case _:
                self._count(message)
                await self._show_whole(message)

    async def _show_whole(self, message: Message) -> None:
        streamed = self._answer.end().strip()
        match message:
            case ThoughtEvent():
                self._name(message.source)
                self._terminal.line(message.content.strip(), "dim")
            case CodeGenerationEvent():
                self._show_text(message.source, message.content, streamed)
                if "cut_off" in message.metadata:
                    self._terminal.line("The answer was cut off, so none of its code is run.", "red")
                elif "sent_back" in message.metadata:
                    self._terminal.line(f"Sent back to the model: {message.metadata['sent_back']}", "yellow")
            case CodeExecutionEvent():
                self._name(message.source)
                await self._show_result(message.result, hints_in(message))
            case TextMessage() if "exit_code" in message.metadata:
                self._show_text(message.source, message.content, self._take_output().strip())
            case TextMessage(source="user"):
                pass
            case BaseChatMessage():
                self._show_text(message.source, message.to_text(), streamed)
            case _:
                self._terminal.line(f"{type(message).__name__} of {message.source}: {message.to_text()}", "dim")

    def _show_text(self, source: str, content: str, streamed: str) -> None:
        if content.strip() != streamed and content.strip():
            self._name(source)
            self._answer.add(content.strip())
            self._answer.end()

    def _name(self, source: str) -> None:
        if self._team and source != self._speaker:
            self._terminal.line(f"{source}:", "cyan", bold=True)
        self._speaker = source

    def _take_output(self) -> str:
        self._terminal.end_output()
        output, self._output = self._output, ""
        return output

    async def _show_result(self, result: CodeResult, hints: list[str]) -> None:
        shown = self._take_output()
        written = apply_carriage_returns(written_by_code(result)).rstrip()
        if not shown.strip() and written:
            self._terminal.line(shorten(written))
        if isinstance(result, ExecutionResult):
            self._show_displays(result, f"{shown}{written}")
            self.files_made |= {artifact.name for artifact in result.artifacts if artifact.path is not None}
        for remark in [*remarks(_without_displays(result)), *hints]:
            self._terminal.line(remark, "yellow")
        if self._files is not None and isinstance(result, ExecutionResult):
            for name, lines in await self._files.changes(result):
                self._show_difference(name, lines)
        self._terminal.line(f"[{outcome_summary(result)}]", "green" if result.exit_code == 0 else "red")

    def _show_displays(self, result: ExecutionResult, output: str) -> None:
        for display in result.displays:
            where = f": {printable(str(display.path.absolute()))}" if display.path is not None else ""
            if not where and display.text.strip() and display.text.strip() in output:
                continue  # a table that is the block's value
            self._terminal.line(f"[{printable(display.name)}{where}]", "magenta")
            if not where and display.text:
                self._terminal.line(shorten(display.text))

    def _show_difference(self, name: str, lines: list[str]) -> None:
        self._terminal.line(f"{printable(name)} has changed:", bold=True)
        for line in lines:
            self._terminal.line(line, "green" if line[:1] == "+" else "red" if line[:1] == "-" else "dim")

    def _count(self, message: Message) -> None:
        self._blocks += isinstance(message, CodeExecutionEvent)
        if (usage := message.models_usage) is not None:
            self._tokens += usage.prompt_tokens + usage.completion_tokens

    def end_line(self) -> None:
        """End what is being printed."""
        self._answer.end()
        self._take_output()

    def summary(self) -> str:
        """Return tokens and seconds of the turn."""
        blocks = f"{format_count(self._blocks, 'block')}, " if self._blocks else ""
        tokens = format_count(self._tokens, "token")
        return f"[{blocks}{tokens}, {format_duration(time.monotonic() - self._began)}]"


def _without_displays(result: CodeResult) -> CodeResult:
    """Return a result without the files that are named as displays."""
    if not isinstance(result, ExecutionResult):
        return result
    shown = {display.name for display in result.displays}
    return replace(result, artifacts=tuple(file for file in result.artifacts if file.name not in shown))


class FileChanges:
    """Compares the files of a workspace with what they were."""

    def __init__(self, folder: Path | None) -> None:
        self._before: dict[str, list[str] | None] = {}
        self._folder = folder

    async def begin(self) -> None:
        """Read the files as they are."""
        if self._folder is not None:
            await asyncio.to_thread(self._read_all, self._folder)

    def _read_all(self, folder: Path) -> None:
        for parent, _, names in os.walk(folder):
            for name in sorted(names):
                if len(self._before) >= MAX_FILES:
                    return
                path = Path(parent, name)
                self._before[path.relative_to(folder).as_posix()] = _lines(path)

    async def changes(self, result: ExecutionResult) -> list[tuple[str, list[str]]]:
        """Return the files that a block has changed, each with the lines of a unified diff; new text files have only `+`."""
        return await asyncio.to_thread(self._changes, result)

    def _changes(self, result: ExecutionResult) -> list[tuple[str, list[str]]]:
        changed = []
        shown = {display.name for display in result.displays}
        for artifact in result.artifacts:
            if artifact.path is None or artifact.name in shown:
                continue
            before, after = self._before.get(artifact.name, []), _lines(artifact.path)
            if len(self._before) < MAX_FILES or artifact.name in self._before:
                self._before[artifact.name] = after
            if after is None or before is None:
                changed.append((artifact.name, [_BINARY]))
            elif (lines := differing_lines(before, after, context=2)) is None:
                changed.append((artifact.name, [_TOO_DIFFERENT]))
            elif lines := lines[2:]:
                more = len(lines) - MAX_LINES
                changed.append(
                    (artifact.name, [*lines[:MAX_LINES], *([_TOO_LONG.format(count=more)] if more > 0 else [])])
                )
        return changed


def _lines(path: Path) -> list[str] | None:
    """Return the lines of a small text file; None if it is another one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        return data.decode().splitlines() if len(data) <= MAX_FILE_BYTES and b"\0" not in data else None
    except (OSError, UnicodeDecodeError):
        return None
