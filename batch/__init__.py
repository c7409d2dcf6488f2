"""Many tasks: run them at the same time, check the answers, keep everything, and go on after an interruption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.batch.attempt import AttemptResult, AttemptWork, WorkerContext, run_attempt
    from autogen_codeact.batch.backend import Backend, BatchContext, LocalBackend
    from autogen_codeact.batch.checks import check_answer
    from autogen_codeact.batch.errors import (
        AttemptError,
        BatchBackendError,
        BatchBudgetError,
        BatchChangedError,
        BatchError,
        BatchFolderError,
        BatchTasksError,
    )
    from autogen_codeact.batch.progress import (
        AttemptFailed,
        BatchCounts,
        BatchEvent,
        Notice,
        TaskFinished,
        TaskStarted,
        Waiting,
    )
    from autogen_codeact.batch.ray_backend import Ray
    from autogen_codeact.batch.reading import read_tasks
    from autogen_codeact.batch.report import Comparison, compare, comparison_text, summary_text
    from autogen_codeact.batch.results import load_rows
    from autogen_codeact.batch.rows import AttemptRecord, CheckResult, Row
    from autogen_codeact.batch.running import Batch, run_batch
    from autogen_codeact.batch.settings import BatchSettings, Prices
    from autogen_codeact.batch.summary import Summary, summarize, write_summary
    from autogen_codeact.batch.tables import write_parquet
    from autogen_codeact.batch.tasks import BadTask, Check, Task

_HOME = {
    "AttemptError": "errors",
    "AttemptFailed": "progress",
    "AttemptRecord": "rows",
    "AttemptResult": "attempt",
    "AttemptWork": "attempt",
    "Backend": "backend",
    "BadTask": "tasks",
    "Batch": "running",
    "BatchBackendError": "errors",
    "BatchBudgetError": "errors",
    "BatchChangedError": "errors",
    "BatchContext": "backend",
    "BatchCounts": "progress",
    "BatchError": "errors",
    "BatchEvent": "progress",
    "BatchFolderError": "errors",
    "BatchSettings": "settings",
    "BatchTasksError": "errors",
    "Check": "tasks",
    "CheckResult": "rows",
    "Comparison": "report",
    "LocalBackend": "backend",
    "Notice": "progress",
    "Prices": "settings",
    "Ray": "ray_backend",
    "Row": "rows",
    "Summary": "summary",
    "Task": "tasks",
    "TaskFinished": "progress",
    "TaskStarted": "progress",
    "Waiting": "progress",
    "WorkerContext": "attempt",
    "check_answer": "checks",
    "compare": "report",
    "comparison_text": "report",
    "load_rows": "results",
    "read_tasks": "reading",
    "run_attempt": "attempt",
    "run_batch": "running",
    "summarize": "summary",
    "summary_text": "report",
    "write_parquet": "tables",
    "write_summary": "summary",
}

__all__ = [
    "AttemptError",
    "AttemptFailed",
    "AttemptRecord",
    "AttemptResult",
    "AttemptWork",
    "Backend",
    "BadTask",
    "Batch",
    "BatchBackendError",
    "BatchBudgetError",
    "BatchChangedError",
    "BatchContext",
    "BatchCounts",
    "BatchError",
    "BatchEvent",
    "BatchFolderError",
    "BatchSettings",
    "BatchTasksError",
    "Check",
    "CheckResult",
    "Comparison",
    "LocalBackend",
    "Notice",
    "Prices",
    "Ray",
    "Row",
    "Summary",
    "Task",
    "TaskFinished",
    "TaskStarted",
    "Waiting",
    "WorkerContext",
    "check_answer",
    "compare",
    "comparison_text",
    "load_rows",
    "read_tasks",
    "run_attempt",
    "run_batch",
    "summarize",
    "summary_text",
    "write_parquet",
    "write_summary",
]

# The modules import AutoGen.
__getattr__, __dir__ = lazy_names(__name__, _HOME)
