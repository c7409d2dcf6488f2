"""Sandboxes for code that a model has written. Nothing here needs AutoGen; each name is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.sandbox.async_sandbox import AsyncSandbox
    from autogen_codeact.sandbox.backends.docker.hosts import DockerHost, DockerTLS
    from autogen_codeact.sandbox.displays import Display
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
    from autogen_codeact.sandbox.observers import (
        BlockFinished,
        BlockId,
        BlockStarted,
        CallFinished,
        CallIntent,
        Observer,
        Recorder,
        SandboxStarted,
        SandboxStopped,
    )
    from autogen_codeact.sandbox.options import BubblewrapOptions, DockerOptions, SandboxOptions
    from autogen_codeact.sandbox.pool import SandboxPool
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
    from autogen_codeact.sandbox.tools.approval import ApproveTool, ToolApproval, ToolApprovalRequest
    from autogen_codeact.sandbox.tools.host_tool import HostTool
    from autogen_codeact.sandbox.tools.limits import ToolLimits
    from autogen_codeact.sandbox.tools.tool import HostToolProtocol, ToolAnswer

_HOME = {
    "ApproveTool": "autogen_codeact.sandbox.tools.approval",
    "Artifact": "autogen_codeact.sandbox.result",
    "AsyncSandbox": "autogen_codeact.sandbox.async_sandbox",
    "BlockFinished": "autogen_codeact.sandbox.observers",
    "BlockId": "autogen_codeact.sandbox.observers",
    "BlockStarted": "autogen_codeact.sandbox.observers",
    "BubblewrapOptions": "autogen_codeact.sandbox.options",
    "CallFinished": "autogen_codeact.sandbox.observers",
    "CallIntent": "autogen_codeact.sandbox.observers",
    "CallOutcome": "autogen_codeact.sandbox.result",
    "Display": "autogen_codeact.sandbox.displays",
    "DockerHost": "autogen_codeact.sandbox.backends.docker.hosts",
    "DockerOptions": "autogen_codeact.sandbox.options",
    "DockerTLS": "autogen_codeact.sandbox.backends.docker.hosts",
    "ErrorInfo": "autogen_codeact.sandbox.result",
    "HostTool": "autogen_codeact.sandbox.tools.host_tool",
    "HostToolProtocol": "autogen_codeact.sandbox.tools.tool",
    "Limits": "autogen_codeact.sandbox.limits",
    "NetworkConnection": "autogen_codeact.sandbox.result",
    "Observer": "autogen_codeact.sandbox.observers",
    "Outcome": "autogen_codeact.sandbox.result",
    "OutputChunk": "autogen_codeact.sandbox.host.chunks",
    "Recorder": "autogen_codeact.sandbox.observers",
    "Result": "autogen_codeact.sandbox.result",
    "Sandbox": "autogen_codeact.sandbox.sync_sandbox",
    "SandboxDied": "autogen_codeact.sandbox.errors",
    "SandboxError": "autogen_codeact.sandbox.errors",
    "SandboxFileError": "autogen_codeact.sandbox.errors",
    "SandboxNameInUse": "autogen_codeact.sandbox.errors",
    "SandboxNotStarted": "autogen_codeact.sandbox.errors",
    "SandboxOptions": "autogen_codeact.sandbox.options",
    "SandboxPool": "autogen_codeact.sandbox.pool",
    "SandboxProtocolError": "autogen_codeact.sandbox.errors",
    "SandboxStartError": "autogen_codeact.sandbox.errors",
    "SandboxStarted": "autogen_codeact.sandbox.observers",
    "SandboxStopped": "autogen_codeact.sandbox.observers",
    "SandboxTimeout": "autogen_codeact.sandbox.errors",
    "SandboxUnavailable": "autogen_codeact.sandbox.errors",
    "State": "autogen_codeact.sandbox.result",
    "ToolAnswer": "autogen_codeact.sandbox.tools.tool",
    "ToolApproval": "autogen_codeact.sandbox.tools.approval",
    "ToolApprovalRequest": "autogen_codeact.sandbox.tools.approval",
    "ToolCall": "autogen_codeact.sandbox.result",
    "ToolLimits": "autogen_codeact.sandbox.tools.limits",
}

__all__ = [
    "ApproveTool",
    "Artifact",
    "AsyncSandbox",
    "BlockFinished",
    "BlockId",
    "BlockStarted",
    "BubblewrapOptions",
    "CallFinished",
    "CallIntent",
    "CallOutcome",
    "Display",
    "DockerHost",
    "DockerOptions",
    "DockerTLS",
    "ErrorInfo",
    "HostTool",
    "HostToolProtocol",
    "Limits",
    "NetworkConnection",
    "Observer",
    "Outcome",
    "OutputChunk",
    "Recorder",
    "Result",
    "Sandbox",
    "SandboxDied",
    "SandboxError",
    "SandboxFileError",
    "SandboxNameInUse",
    "SandboxNotStarted",
    "SandboxOptions",
    "SandboxPool",
    "SandboxProtocolError",
    "SandboxStartError",
    "SandboxStarted",
    "SandboxStopped",
    "SandboxTimeout",
    "SandboxUnavailable",
    "State",
    "ToolAnswer",
    "ToolApproval",
    "ToolApprovalRequest",
    "ToolCall",
    "ToolLimits",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
