"""Many tasks: run them at the same time, check the answers, keep everything, and go on after an interruption."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.batch.rows import AttemptRecord, CheckResult, Row
    from autogen_codeact.batch.tasks import Check, Task

_HOME = {
    "AttemptRecord": "rows",
    "Check": "tasks",
    "CheckResult": "rows",
    "Row": "rows",
    "Task": "tasks",
}

__all__ = ["AttemptRecord", "Check", "CheckResult", "Row", "Task"]


def __getattr__(name: str) -> Any:
    # The modules import AutoGen.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
