"""What a worker reports about its block, and the displays that it sends, checked: user code can write to its socket."""

import signal

from ..shared import wire
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


class DisplayRelay:
    """Forwards the displays of one block within its limits, and drops what is malformed or too much."""

    def __init__(self, supervisor, ident):
        self._supervisor = supervisor
        self._ident = ident
        self._count = self._size = self._clears = 0

    def forward(self, message, capture):
        """Send a display to the host, and put its line into the output; return whether it was one."""
        data = message.get("data", b"")
        if message.get("clear") is True:
            self._clears += 1
            if self._clears <= wire.MAX_DISPLAYS:
                self._supervisor.send(wire.DISPLAY, self._ident, {"clear": True})
            return False
        checked = _checked(message, data) if isinstance(data, bytes) else None
        if checked is None:
            return False
        end = len(data) - checked["line"]
        self._count += 1
        self._size += end
        if self._count > wire.MAX_DISPLAYS or self._size > wire.MAX_DISPLAY_BYTES:
            return False
        capture.drain()
        self._supervisor.send(wire.DISPLAY, self._ident, dict(checked, at=capture.received), data)
        capture.keep(data[end:])
        return True


def _checked(message, data):
    """Return a message with nothing in it but bounded values of the right types, or None."""
    fields = {name: message.get(name) for name in ("parts", "metadata", "number", "replaces", "line")}
    parts, metadata, line = fields["parts"], fields["metadata"], fields["line"]
    if not isinstance(parts, list) or not 0 < len(parts) <= wire.MAX_TYPES or not all(map(_is_part, parts)):
        return None
    if not _is_number(fields["number"]) or not (fields["replaces"] is None or _is_number(fields["replaces"])):
        return None
    if not isinstance(metadata, str) or len(metadata) > wire.MAX_METADATA:
        return None
    if not _is_number(line) or line > wire.MAX_LINE or sum(size for _, size in parts) + line != len(data):
        return None
    return fields


def _is_part(part):
    return (
        isinstance(part, list)
        and len(part) == 2
        and isinstance(part[0], str)
        and len(part[0]) <= wire.MAX_TYPE_CHARS
        and _is_number(part[1])
    )


def _is_number(thing):
    return type(thing) is int and 0 <= thing < 2**31
