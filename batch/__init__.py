"""Many tasks: run them at the same time, check the answers, keep everything, and go on after an interruption."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.batch.checks import check_answer as check_answer
    from autogen_codeact.batch.errors import AttemptError as AttemptError
    from autogen_codeact.batch.errors import BatchBackendError as BatchBackendError
    from autogen_codeact.batch.errors import BatchBudgetError as BatchBudgetError
    from autogen_codeact.batch.errors import BatchChangedError as BatchChangedError
    from autogen_codeact.batch.errors import BatchError as BatchError
    from autogen_codeact.batch.errors import BatchFolderError as BatchFolderError
    from autogen_codeact.batch.errors import BatchTasksError as BatchTasksError
    from autogen_codeact.batch.progress import AttemptFailed as AttemptFailed
    from autogen_codeact.batch.progress import BatchCounts as BatchCounts
    from autogen_codeact.batch.progress import BatchEvent as BatchEvent
    from autogen_codeact.batch.progress import Notice as Notice
    from autogen_codeact.batch.progress import TaskFinished as TaskFinished
    from autogen_codeact.batch.progress import TaskStarted as TaskStarted
    from autogen_codeact.batch.ray.backend import Ray as Ray
    from autogen_codeact.batch.reading import read_tasks as read_tasks
    from autogen_codeact.batch.report import Comparison as Comparison
    from autogen_codeact.batch.report import compare as compare
    from autogen_codeact.batch.report import comparison_text as comparison_text
    from autogen_codeact.batch.report import summary_text as summary_text
    from autogen_codeact.batch.results import load_rows as load_rows
    from autogen_codeact.batch.rows import AttemptRecord as AttemptRecord
    from autogen_codeact.batch.rows import CheckResult as CheckResult
    from autogen_codeact.batch.rows import Row as Row
    from autogen_codeact.batch.running import Batch as Batch
    from autogen_codeact.batch.running import run_batch as run_batch
    from autogen_codeact.batch.settings import BatchSettings as BatchSettings
    from autogen_codeact.batch.settings import Prices as Prices
    from autogen_codeact.batch.summary import Summary as Summary
    from autogen_codeact.batch.summary import summarize as summarize
    from autogen_codeact.batch.summary import write_summary as write_summary
    from autogen_codeact.batch.tasks import BadTask as BadTask
    from autogen_codeact.batch.tasks import Check as Check
    from autogen_codeact.batch.tasks import Task as Task

# The modules import AutoGen.
_NAMES = {
    "autogen_codeact.batch.checks": "check_answer",
    "autogen_codeact.batch.errors": (
        "AttemptError BatchBackendError BatchBudgetError BatchChangedError BatchError BatchFolderError BatchTasksError"
    ),
    "autogen_codeact.batch.progress": "AttemptFailed BatchCounts BatchEvent Notice TaskFinished TaskStarted",
    "autogen_codeact.batch.ray.backend": "Ray",
    "autogen_codeact.batch.reading": "read_tasks",
    "autogen_codeact.batch.report": "Comparison compare comparison_text summary_text",
    "autogen_codeact.batch.results": "load_rows",
    "autogen_codeact.batch.rows": "AttemptRecord CheckResult Row",
    "autogen_codeact.batch.running": "Batch run_batch",
    "autogen_codeact.batch.settings": "BatchSettings Prices",
    "autogen_codeact.batch.summary": "Summary summarize write_summary",
    "autogen_codeact.batch.tasks": "BadTask Check Task",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
