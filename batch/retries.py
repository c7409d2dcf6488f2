"""Which errors are temporary, so that a task is attempted again, and when."""

from __future__ import annotations

import random

from autogen_codeact.batch.errors import TaskTimeoutError
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.plan import RunIsFinishedError
from autogen_codeact.runs.writer import LogLocked
from codeact_sandbox import (
    SandboxDied,
    SandboxProtocolError,
    SandboxStartError,
    SandboxTimeout,
    SandboxUnavailable,
)

MAX_BACKOFF_S = 60.0
_STATUS = frozenset({408, 409, 425, 429})
_SANDBOX = (SandboxDied, SandboxProtocolError, SandboxStartError, SandboxTimeout, SandboxUnavailable)
# By name: importing a vendor's package takes long, and it is there if the error is one of its own.
_CONNECTION = frozenset({"APIConnectionError", "APITimeoutError", "TransportError", "ModelTimeoutError"})


def is_retryable(error: BaseException) -> bool:
    """Return whether an attempt that ended with an error may succeed when it is made again.

    What the agent's own code raises, the end of `task_timeout`, and other HTTP errors than those below stay.
    """
    if isinstance(error, TaskTimeoutError):
        return False
    if isinstance(error, _SANDBOX):
        return True
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        spent = getattr(error, "code", None) == "insufficient_quota"
        return not spent and (status in _STATUS or (status >= 500 and status != 501))
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & _CONNECTION) or isinstance(error, ConnectionError)


def is_unusable_log(error: BaseException) -> bool:
    """Return whether an error says that a run log can't be continued, so that the task needs a new one."""
    return (isinstance(error, RunError | LogLocked) and not isinstance(error, RunIsFinishedError)) or isinstance(
        error, FileExistsError
    )


def backoff(backoff_s: float, failures: int, retry_after: float | None = None) -> float:
    """Return the seconds to wait before the next attempt."""
    delay = min(backoff_s * 2.0 ** min(failures - 1, 30), MAX_BACKOFF_S)
    delay *= random.uniform(0.75, 1.0)  # noqa: S311 - only so that many tasks don't begin again at the same time
    return max(delay, min(retry_after or 0.0, MAX_BACKOFF_S))
