"""What happened in a run: its log, written as it happens."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.runs.answers import AlreadyAnsweredError as AlreadyAnsweredError
    from autogen_codeact.runs.answers import RunWaiting as RunWaiting
    from autogen_codeact.runs.atif import export_atif as export_atif
    from autogen_codeact.runs.conversation import RecordedConversation as RecordedConversation
    from autogen_codeact.runs.errors import RunError as RunError
    from autogen_codeact.runs.notebook import export_files as export_files
    from autogen_codeact.runs.notebook import export_json as export_json
    from autogen_codeact.runs.notebook import export_notebook as export_notebook
    from autogen_codeact.runs.notebook import kept_files as kept_files
    from autogen_codeact.runs.plan import RunIsFinishedError as RunIsFinishedError
    from autogen_codeact.runs.reader import Run as Run
    from autogen_codeact.runs.reader import load_run as load_run
    from autogen_codeact.runs.recording import recorded as recorded
    from autogen_codeact.runs.resuming import resume as resume
    from autogen_codeact.runs.resuming import resumed as resumed
    from autogen_codeact.runs.steps import RunDivergedError as RunDivergedError
    from autogen_codeact.runs.summary import list_runs as list_runs
    from autogen_codeact.runs.summary import summarize as summarize
    from autogen_codeact.runs.writer import LogLocked as LogLocked

_NAMES = {
    "autogen_codeact.runs.answers": "AlreadyAnsweredError RunWaiting",
    "autogen_codeact.runs.atif": "export_atif",
    "autogen_codeact.runs.conversation": "RecordedConversation",
    "autogen_codeact.runs.errors": "RunError",
    "autogen_codeact.runs.notebook": "export_files export_json export_notebook kept_files",
    "autogen_codeact.runs.plan": "RunIsFinishedError",
    "autogen_codeact.runs.reader": "Run load_run",
    "autogen_codeact.runs.recording": "recorded",
    "autogen_codeact.runs.resuming": "resume resumed",
    "autogen_codeact.runs.steps": "RunDivergedError",
    "autogen_codeact.runs.summary": "list_runs summarize",
    "autogen_codeact.runs.writer": "LogLocked",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
