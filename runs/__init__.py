"""What happened in a run: its log, written as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.runs.continuing import resume, resumed
    from autogen_codeact.runs.conversation import NothingToUndo, RecordedConversation, Undone
    from autogen_codeact.runs.copies import export_files, kept_files
    from autogen_codeact.runs.errors import RunError, RunFileError, RunFolderError, RunVersionError
    from autogen_codeact.runs.events import RunEvent
    from autogen_codeact.runs.export import export_json, export_notebook
    from autogen_codeact.runs.messages import load_message
    from autogen_codeact.runs.plan import RunIsFinishedError, RunNotResumableError
    from autogen_codeact.runs.reader import Gap, Run, UnknownEvent, load_run
    from autogen_codeact.runs.recording import recorded
    from autogen_codeact.runs.sessions import Rebuilding
    from autogen_codeact.runs.steps import RunDivergedError
    from autogen_codeact.runs.summary import RunSummary, UnreadableRun, list_runs, summarize
    from autogen_codeact.runs.writer import LogLocked

_HOME = {
    "Gap": "reader",
    "LogLocked": "writer",
    "NothingToUndo": "conversation",
    "Rebuilding": "sessions",
    "RecordedConversation": "conversation",
    "Run": "reader",
    "RunDivergedError": "steps",
    "RunError": "errors",
    "RunEvent": "events",
    "RunFileError": "errors",
    "RunFolderError": "errors",
    "RunIsFinishedError": "plan",
    "RunNotResumableError": "plan",
    "RunSummary": "summary",
    "RunVersionError": "errors",
    "Undone": "conversation",
    "UnknownEvent": "reader",
    "UnreadableRun": "summary",
    "export_files": "copies",
    "export_json": "export",
    "export_notebook": "export",
    "kept_files": "copies",
    "list_runs": "summary",
    "load_message": "messages",
    "load_run": "reader",
    "recorded": "recording",
    "resume": "continuing",
    "resumed": "continuing",
    "summarize": "summary",
}

__all__ = [
    "Gap",
    "LogLocked",
    "NothingToUndo",
    "Rebuilding",
    "RecordedConversation",
    "Run",
    "RunDivergedError",
    "RunError",
    "RunEvent",
    "RunFileError",
    "RunFolderError",
    "RunIsFinishedError",
    "RunNotResumableError",
    "RunSummary",
    "RunVersionError",
    "Undone",
    "UnknownEvent",
    "UnreadableRun",
    "export_files",
    "export_json",
    "export_notebook",
    "kept_files",
    "list_runs",
    "load_message",
    "load_run",
    "recorded",
    "resume",
    "resumed",
    "summarize",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
