"""`codeact show`: a saved run, printed as `codeact run` has printed it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from autogen_agentchat.messages import CodeExecutionEvent, TextMessage
from autogen_core.code_executor import CodeResult

from autogen_codeact.cli.exit import say
from autogen_codeact.cli.json_output import record_fields, result_object, tells_result
from autogen_codeact.cli.output import print_json, printable
from autogen_codeact.cli.run_storage import run_name
from autogen_codeact.cli.terminal import MAX_TEXT, Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.runs import Gap, Run, RunFileError, UnknownEvent, kept_files, load_run
from autogen_codeact.runs.budget import MAX_EVENT, Budget
from autogen_codeact.runs.events import (
    BlockFinished,
    ChunkLogged,
    ConversationChanged,
    LogStopped,
    MessageLogged,
    RunEvent,
    RunFinished,
    TurnFinished,
)
from autogen_codeact.runs.messages import load_message
from autogen_codeact.runs.reader import RawEvent
from autogen_codeact.runs.results import ErrorRecord
from autogen_codeact.runs.store import is_being_written
from autogen_codeact.sandbox.types.formatting import format_count

MAX_NAMES = 100
"""Names of files that are printed."""


def show_run(path: Path, *, as_json: bool) -> int:
    """Print a run's messages, and what can't be read."""
    run = load_run(path)
    printer = _JsonPrinter(run) if as_json else _TextPrinter(run)
    finished: RunFinished | None = None
    unknown = 0
    for raw in run.raw_events():
        event = run.parse(replace(raw, budget=Budget(printer.most))) if isinstance(raw, RawEvent) else raw
        unknown += isinstance(event, UnknownEvent)
        finished = event if isinstance(event, RunFinished) else None
        printer.show(event)
    if files := [printable(name) for name, file in kept_files(run).items() if run.folder.path_of(file) is not None]:
        more = f" and {len(files) - MAX_NAMES:,} more" if len(files) > MAX_NAMES else ""
        names = f"{', '.join(sorted(files)[:MAX_NAMES])}{more}"
        say(f"with the files {names}: `codeact export {run_name(path)} --files FOLDER` writes them")
    if unknown:
        say(f"{format_count(unknown, 'event')} of types that this version does not know: not shown")
    if finished is None and not run.started.conversation:
        if is_being_written(path):
            say("the run is still going on")
        else:
            say(f"the run was interrupted: `codeact resume {run_name(path)}` continues it")
    elif finished is not None and finished.outcome == "cancelled":
        say("the run was cancelled")
    elif finished is not None and finished.error is not None:
        say(f"The run failed. {finished.error.type}: {finished.error.message}")
    if run.started.conversation:
        say(f"`codeact chat --resume {run_name(path)}` goes on with the conversation")
    elif finished is not None and finished.outcome != "completed":
        say(f"`codeact resume {run_name(path)}` continues the run")
    return 0


def _describe(gap: Gap) -> str:
    where = f"line {gap.line}" if gap.lines <= 1 else f"lines {gap.line} to {gap.line + gap.lines - 1}"
    return f"gap in the log, {where}: {gap.reason}"


class _JsonPrinter:
    most = MAX_EVENT
    """Bytes of memory that the values of an event may take."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last: BlockFinished | None = None

    def show(self, event: RunEvent | UnknownEvent | Gap) -> None:
        match event:
            case BlockFinished():
                self._last = event
            case MessageLogged(message=message) if tells_result(message):
                print_json(message | record_fields(self._last.result if self._last else None, self._run))
            case MessageLogged() | ChunkLogged():
                print_json(event.message)
            case RunFinished(outcome="completed"):
                print_json(result_object(event.stop_reason, self._run.folder.path))
            case Gap():
                say(_describe(event))


class _TextPrinter:
    most = 4 * MAX_TEXT

    def __init__(self, run: Run) -> None:
        self._terminal = Terminal()
        self._transcript = Transcript(self._terminal, team=run.started.kind == "team")
        self._run = run
        self._last: BlockFinished | None = None

    def show(self, event: RunEvent | UnknownEvent | Gap) -> None:
        match event:
            case BlockFinished():
                self._last = event
            case MessageLogged() | ChunkLogged():
                self._transcript.show(self._with_result(_as_message(event)))
            case TurnFinished(outcome="cancelled"):
                self._terminal.line("[the person ended this turn]\n", "yellow")
            case TurnFinished(error=ErrorRecord() as error):
                self._terminal.line(f"[this turn failed: {error.type}: {error.message}]\n", "red")
            case ConversationChanged(change="undone"):
                self._terminal.line("[the last turn was undone]\n", "yellow")
            case ConversationChanged():
                self._terminal.line("[the conversation was reset]\n", "yellow")
            case LogStopped():
                self._terminal.line(f"[the run went on without a log: {event.reason}]", "yellow")
            case Gap():
                self._terminal.line(f"[{_describe(event)}]", "yellow")

    def _with_result(self, message: Message) -> Message:
        """Return a message about a result with all of the result: AutoGen keeps the exit code and the output only."""
        if not isinstance(message, CodeExecutionEvent) or self._last is None or self._last.result is None:
            return message
        try:
            result = self._run.result(self._last.result)
        except RunFileError:
            return message
        return message.model_copy(update={"result": result}) if _same(result, message.result) else message


def _same(one: CodeResult, other: CodeResult) -> bool:
    return (one.exit_code, one.output) == (other.exit_code, other.output)


def _as_message(event: MessageLogged | ChunkLogged) -> Message:
    """Return a message of a log as AutoGen's; one that AutoGen can't make is a text message with its content."""
    try:
        return load_message(event.message)
    except Exception:  # noqa: BLE001 - classes of messages and schemas of contents can raise anything
        content, source = event.message.get("content"), event.message.get("source")
        text = content if isinstance(content, str) else json.dumps(content)
        return TextMessage(content=text, source=str(source or event.message.get("type")))
