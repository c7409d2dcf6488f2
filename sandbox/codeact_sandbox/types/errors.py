"""Errors around the code, such as a lost sandbox. What the code itself did is a `Result`, never one of these.

SandboxError
├── SandboxUnavailable       (ConnectionError)    no engine answers, no permission, no image available
├── SandboxStartError        (RuntimeError)       the engine answers, the sandbox did not start
│   └── SandboxNameInUse     (FileExistsError)    a live sandbox already has this name
├── SandboxDied              (ConnectionError)    it was running and is gone, with the exit detail
├── SandboxTimeout           (TimeoutError)       it did not answer by the host's own deadline
├── SandboxProtocolError     (RuntimeError)       it sent something that the protocol does not allow
├── SandboxNotStarted        (RuntimeError)       it was used before start() or after stop()
├── Unsupported              (NotImplementedError) no sandbox can do this
└── SandboxFileError         (OSError)            a file could not be moved in or out
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codeact_sandbox.types.result import ToolCall


class SandboxError(Exception):
    """Something around the code broke; the message says what to do.

    Args:
        tool_calls: Calls to host tools that the code had made by then; they have happened.
    """

    tool_calls: tuple[ToolCall, ...] = ()


class SandboxUnavailable(SandboxError, ConnectionError):
    """No sandbox is available on this machine as it is."""


class SandboxStartError(SandboxError, RuntimeError):
    """The engine answered but the sandbox did not start."""


class SandboxNameInUse(SandboxStartError, FileExistsError):
    """A live sandbox already has the requested name; it was left alone."""


class SandboxDied(SandboxError, ConnectionError):
    """The sandbox was running and is gone."""


class SandboxTimeout(SandboxError, TimeoutError):
    """The sandbox did not answer by the host's own deadline."""


class SandboxProtocolError(SandboxError, RuntimeError):
    """The sandbox sent something that the protocol does not allow."""


class SandboxNotStarted(SandboxError, RuntimeError):
    """The sandbox was used before `start()` or after `stop()`."""


class Unsupported(SandboxError, NotImplementedError):
    """No sandbox can do this; the message says why."""


class SandboxFileError(SandboxError, OSError):
    """A file could not be moved into or out of the sandbox."""

    reason: str | None = None
    """Why, without paths of the host; None if the message contains none."""
