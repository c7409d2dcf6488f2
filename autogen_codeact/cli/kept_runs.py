"""The runs that are kept: their folders, and the commands `runs`, `show` and `export`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from autogen_agentchat.messages import CodeExecutionEvent, TextMessage

from autogen_codeact.cli.jobs import NO_LOG
from autogen_codeact.cli.output import CommandError, print_json, printable, say, say_warnings
from autogen_codeact.cli.terminal import Terminal, format_size
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.runs import Run, RunWaiting, events, export_files, kept_files, list_runs, load_run, store
from autogen_codeact.runs.atomic_file import atomic_text_file
from autogen_codeact.runs.errors import RunError, RunFileError, RunFolderError
from autogen_codeact.runs.messages import load_message
from autogen_codeact.runs.plan import Plan, make_plan
from autogen_codeact.runs.reader import Gap
from autogen_codeact.runs.summary import RunSummary, UnreadableRun
from codeact_sandbox.types.result import ErrorInfo, format_duration
from codeact_sandbox.types.text import format_count

MAX_TASK = 60
_COLUMNS = ("RUN", "OUTCOME", "STEPS", "TOKENS", "TIME", "TASK")
MAX_NAMES = 10  # names of files that are printed


def choose_run_folder(task: str) -> Path | None:
    """Return a new folder for a run; if that is impossible, print why and return None."""
    try:
        return store.new_run_folder(task)
    except (RunFolderError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        say(f"the run is not kept ({where}{why}); --save FOLDER keeps it elsewhere, --save none turns this message off")
        return None


def check_folder(folder: Path | None) -> None:
    """Refuse a folder with something in it before the model is asked."""
    if folder is None or folder == NO_LOG:
        return
    try:
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise CommandError(f"--save {folder}: {error.strerror}. Give another folder.") from None
    if used:
        raise CommandError(f"--save needs a new folder for each run, and {folder} is not empty: give another path.")


def print_run_location(run: Path) -> Collection[str]:
    """Print where a run that has just ended is kept, and the commands that show it; return the names of its files."""
    name = store.run_name(run)
    place, hint = ("in", name) if name == str(run) else ("as", store.LAST)
    say(f"kept {place} {name}: `codeact show {hint}` prints it, `codeact view {hint}` opens it")
    return say_files(load_run(run), hint)


def is_chat(folder: Path) -> bool:
    """Return whether a run is a chat; one that can't be read is not."""
    try:
        return load_run(folder).started.conversation
    except RunError:
        return False


def print_chat_location(run: Path) -> None:
    """Print the commands that go on with a chat that has just ended, and show it."""
    name = store.run_name(run)
    say(f"saved: `codeact chat --resume {name}` goes on with it, `codeact show {name}` prints it")
    say_files(load_run(run), name)


def say_files(run: Run, name: str) -> Collection[str]:
    """Print which files of its code a run has kept, and return their names."""
    files = sorted(each for each, file in kept_files(run).items() if run.folder.path_of(file) is not None)
    if files:
        more = f" and {len(files) - MAX_NAMES:,} more" if len(files) > MAX_NAMES else ""
        names = f"{', '.join(map(printable, files[:MAX_NAMES]))}{more}"
        say(f"with the files {names}: `codeact export {name} --files FOLDER` writes them")
    return files


def say_rebuilding(blocks: int) -> None:
    say(f"rebuilding the session: {format_count(blocks, 'block')} (--no-rebuild begins with an empty session)")


def rebuilds(plan: Plan, path: Path, *, wanted: bool, trust: bool) -> bool:
    """Return whether the code of the log runs again to rebuild sessions; say so if the log is not the user's own."""
    if plan.chain is not None:
        return wanted
    unless = "" if trust or not wanted else ", and the session begins empty (--trust rebuilds it)"
    say(f"{path} was made elsewhere, copied or changed: you are asked before code runs{unless}")
    return wanted and trust


def print_runs(folder: Path | None, *, as_json: bool) -> int:
    found = list_runs(folder or store.runs_folder()) if folder is not None or store.runs_folder().exists() else []
    runs = [each for each in found if isinstance(each, RunSummary)]
    unreadable = [each for each in found if isinstance(each, UnreadableRun)]
    if as_json:
        for each in found:
            print_json(_to_object(each))
    elif runs:
        _print_table(list(map(_row, runs)))
    elif not found:
        place = printable(str(folder or store.runs_folder()))
        say(f"no runs in {place}: `codeact run{f' --save {place}/NAME' if folder else ''}` keeps one there")
    for each in unreadable:
        say(each.reason)
    return 1 if unreadable else 0


def _to_object(run: RunSummary | UnreadableRun) -> dict[str, Any]:
    fields = asdict(run) | {"path": str(run.path)}
    if isinstance(run, UnreadableRun):
        return {"outcome": "unreadable", **fields}
    return fields | {"started": run.started.isoformat(), "seconds": round(run.seconds, 3)}


def _row(run: RunSummary) -> tuple[str, ...]:
    return (
        _one_line(run.path.name, MAX_TASK),
        f"{run.outcome}, {format_count(run.gaps, 'gap')}" if run.gaps else run.outcome,
        f"{run.steps:,}",
        f"{run.tokens:,}",
        format_duration(run.seconds),
        _one_line(run.task, MAX_TASK),
    )


def _one_line(text: str, limit: int) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    """Print one line for each run; a narrow terminal has the beginnings of the lines."""
    most = get_terminal_size((10_000, 0)).columns
    *widths, _ = (max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True))
    for row in (_COLUMNS, *rows):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, (*widths, 0), strict=True))
        print(line if len(line) <= most else f"{line[: most - 1]}…")  # noqa: T201 - it is the output


def export_run(path: Path, targets: Mapping[str, Path | None]) -> int:
    """Write a run to files: "html", "ipynb", "json" or "atif", or "files" of its code in a folder."""
    from autogen_codeact.runs import export_json, export_notebook  # noqa: PLC0415 - `codeact run` needs none of them
    from autogen_codeact.runs.atif import export_atif  # noqa: PLC0415 - as above
    from autogen_codeact.viewer.one_file import write_html  # noqa: PLC0415 - as above

    forms = {"html": write_html, "ipynb": export_notebook, "json": export_json, "atif": export_atif}
    wanted = {kind: target for kind, target in targets.items() if target is not None}
    if not wanted:
        raise CommandError("Say what to write: --html FILE, --ipynb FILE, --json FILE, --atif FILE or --files FOLDER.")
    run = load_run(path)
    say_warnings()
    for kind, target in wanted.items():
        try:
            if kind == "files":
                say(f"wrote {target} ({format_count(len(export_files(run, target)), 'file')})")
                continue
            with atomic_text_file(target) as file:
                forms[kind](run, file)
            say(f"wrote {target} ({format_size(target.stat().st_size)})")
        except OSError as error:
            raise CommandError(str(error) if error.errno is None else f"{target}: {error.strerror}.") from error
    return 0


def show_run(path: Path) -> int:
    """Print a run's messages, and what can't be read."""
    run = load_run(path)
    printer = _TextPrinter(run)
    finished: events.RunFinished | None = None
    for event in run:
        finished = event if isinstance(event, events.RunFinished) else None
        printer.show(event)
    name = store.run_name(path)
    say_files(run, name)
    if run.started.conversation:
        say(f"`codeact chat --resume {name}` goes on with the conversation")
    elif finished is not None and finished.outcome == "waiting":
        say(str(RunWaiting(path, make_plan(path).open_questions)))
    elif finished is None and store.is_being_written(path):
        say("the run is still going on")
    elif finished is None or finished.outcome != "completed":
        if finished is not None and finished.error is not None:
            say(f"The run failed. {finished.error.type}: {finished.error.message}")
        say(f"the run has not ended: `codeact resume {name}` continues it")
    return 0


class _TextPrinter:
    def __init__(self, run: Run) -> None:
        self._terminal = Terminal()
        self._transcript = Transcript(self._terminal, team=run.started.kind == "team")
        self._run = run
        self._last: events.BlockFinished | None = None

    def show(self, event: events.RunEvent | Gap) -> None:
        match event:
            case events.BlockFinished():
                self._last = event
            case events.MessageLogged() | events.ChunkLogged():
                self._transcript.show(self._with_result(_as_message(event)))
            case events.TurnFinished(outcome="cancelled"):
                self._transcript.end()
                self._terminal.line("[the person ended this turn]\n", "yellow")
            case events.TurnFinished(error=ErrorInfo() as error):
                self._terminal.line(f"[this turn failed: {error.type}: {error.message}]\n", "red")
            case events.ConversationReset():
                self._terminal.line("[the conversation was reset]\n", "yellow")
            case events.LogStopped():
                self._terminal.line(f"[the run went on without a log: {event.reason}]", "yellow")
            case Gap():
                self._terminal.line(f"[gap in the log, line {event.line}: {event.reason}]", "yellow")

    def _with_result(self, message: Message) -> Message:
        """Return a message about a result with all of the result: AutoGen keeps the exit code and the output only."""
        if not isinstance(message, CodeExecutionEvent) or self._last is None or self._last.result is None:
            return message
        try:
            result = self._run.result(self._last.result)
        except RunFileError:
            return message
        same = (result.exit_code, result.output) == (message.result.exit_code, message.result.output)
        return message.model_copy(update={"result": result}) if same else message


def _as_message(event: events.MessageLogged | events.ChunkLogged) -> Message:
    """Return a message of a log as AutoGen's; one that AutoGen can't make is a text message with its content."""
    try:
        return load_message(event.message)
    except Exception:  # noqa: BLE001 - classes of messages and schemas of contents can raise anything
        content, source = event.message.get("content"), event.message.get("source")
        text = content if isinstance(content, str) else json.dumps(content)
        return TextMessage(content=text, source=str(source or event.message.get("type")))
