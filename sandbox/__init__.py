"""Sandboxes for code that a model has written. Nothing here needs AutoGen; each name is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.sandbox.async_sandbox import AsyncSandbox
    from autogen_codeact.sandbox.errors import (
        SandboxDied,
        SandboxError,
        SandboxFileError,
        SandboxNameInUse,
        SandboxNotStarted,
        SandboxProtocolError,
        SandboxStartError,
        SandboxTimeout,
        SandboxUnavailable,
    )
    from autogen_codeact.sandbox.host.chunks import OutputChunk
    from autogen_codeact.sandbox.limits import Limits
    from autogen_codeact.sandbox.options import BubblewrapOptions, DockerOptions, SandboxOptions
    from autogen_codeact.sandbox.result import (
        Artifact,
        CallOutcome,
        ErrorInfo,
        NetworkConnection,
        Outcome,
        Result,
        State,
        ToolCall,
    )
    from autogen_codeact.sandbox.sync_sandbox import Sandbox
    from autogen_codeact.sandbox.tools.approval import ToolApproval, ToolApprovalRequest
    from autogen_codeact.sandbox.tools.limits import ToolLimits
    from autogen_codeact.sandbox.tools.tool import HostTool

_HOME = {
    "Artifact": "autogen_codeact.sandbox.result",
    "AsyncSandbox": "autogen_codeact.sandbox.async_sandbox",
    "BubblewrapOptions": "autogen_codeact.sandbox.options",
    "CallOutcome": "autogen_codeact.sandbox.result",
    "DockerOptions": "autogen_codeact.sandbox.options",
    "ErrorInfo": "autogen_codeact.sandbox.result",
    "HostTool": "autogen_codeact.sandbox.tools.tool",
    "Limits": "autogen_codeact.sandbox.limits",
    "NetworkConnection": "autogen_codeact.sandbox.result",
    "Outcome": "autogen_codeact.sandbox.result",
    "OutputChunk": "autogen_codeact.sandbox.host.chunks",
    "Result": "autogen_codeact.sandbox.result",
    "Sandbox": "autogen_codeact.sandbox.sync_sandbox",
    "SandboxDied": "autogen_codeact.sandbox.errors",
    "SandboxError": "autogen_codeact.sandbox.errors",
    "SandboxFileError": "autogen_codeact.sandbox.errors",
    "SandboxNameInUse": "autogen_codeact.sandbox.errors",
    "SandboxNotStarted": "autogen_codeact.sandbox.errors",
    "SandboxOptions": "autogen_codeact.sandbox.options",
    "SandboxProtocolError": "autogen_codeact.sandbox.errors",
    "SandboxStartError": "autogen_codeact.sandbox.errors",
    "SandboxTimeout": "autogen_codeact.sandbox.errors",
    "SandboxUnavailable": "autogen_codeact.sandbox.errors",
    "State": "autogen_codeact.sandbox.result",
    "ToolApproval": "autogen_codeact.sandbox.tools.approval",
    "ToolApprovalRequest": "autogen_codeact.sandbox.tools.approval",
    "ToolCall": "autogen_codeact.sandbox.result",
    "ToolLimits": "autogen_codeact.sandbox.tools.limits",
}

__all__ = [
    "Artifact",
    "AsyncSandbox",
    "BubblewrapOptions",
    "CallOutcome",
    "DockerOptions",
    "ErrorInfo",
    "HostTool",
    "Limits",
    "NetworkConnection",
    "Outcome",
    "OutputChunk",
    "Result",
    "Sandbox",
    "SandboxDied",
    "SandboxError",
    "SandboxFileError",
    "SandboxNameInUse",
    "SandboxNotStarted",
    "SandboxOptions",
    "SandboxProtocolError",
    "SandboxStartError",
    "SandboxTimeout",
    "SandboxUnavailable",
    "State",
    "ToolApproval",
    "ToolApprovalRequest",
    "ToolCall",
    "ToolLimits",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
