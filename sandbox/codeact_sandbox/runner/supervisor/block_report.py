"""Checks a worker's report about its block: user code can write to the worker's socket."""

import signal

from ..worker import cell_loop, execution, stdio, values
from . import session_environment

NO_MEMORY = "the kernel killed it because the sandbox's memory limit was reached"


def check(report):
    """Return a worker's report with nothing in it but bounded values of the right types."""
    error = report.get("error")
    if isinstance(error, dict):
        line = error.get("line")
        error = {
            "type": _text(error.get("type"), execution.NAME_LIMIT) or "Exception",
            "message": _text(error.get("message"), execution.MESSAGE_LIMIT) or "",
            "line": line if isinstance(line, int) else None,
        }
    else:
        error = None
    code = report.get("exit_code")
    return {
        "exit_code": code & 0xFF if isinstance(code, int) else 1,
        "error": error,
        "value": _text(report.get("value"), execution.VALUE_LIMIT),
        "plain": _text(report.get("plain"), values.PLAIN_BYTES),
        "late": _text(report.get("late"), 2 * stdio.LATE_LIMIT) or "",
        "too_large": report.get("too_large") is True,
        **session_environment.check(report),
    }


def task_names(report):
    """Return the names of the tasks that were pending when a checkpoint was taken that has been restored."""
    names = report.get("cancelled")
    names = names[: cell_loop.MAX_NAMED_TASKS] if isinstance(names, list) else []
    names = [_text(name, cell_loop.TASK_NAME_LIMIT) for name in names if isinstance(name, str)]
    return ["".join(char if char.isprintable() else "?" for char in name) for name in names]


def out_of_memory():
    """Return the outcome of a block that was killed because memory ran out, as (outcome, exit code, error)."""
    return "oom", 128 + signal.SIGKILL, {"type": "OutOfMemory", "message": NO_MEMORY, "line": None}


def _text(thing, limit):
    return thing[:limit] if isinstance(thing, str) else None
