"""How code runs: sandbox, session, result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.executors.auto import choose_executor
    from autogen_codeact.executors.bubblewrap.executor import (
        BubblewrapCommandLineCodeExecutor,
        BubblewrapCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.chunks import OutputChunk
    from autogen_codeact.executors.docker.executor import (
        DockerCommandLineCodeExecutor,
        DockerCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.docker.image import DEFAULT_IMAGE
    from autogen_codeact.executors.errors import (
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
    from autogen_codeact.executors.executor import SandboxCodeExecutor
    from autogen_codeact.executors.limits import Limits
    from autogen_codeact.executors.pool import SandboxPool
    from autogen_codeact.executors.result import (
        Artifact,
        CallOutcome,
        ErrorInfo,
        ExecutionResult,
        NetworkConnection,
        Outcome,
        State,
        ToolCall,
    )
    from autogen_codeact.executors.tools.approval import ApproveTool, ToolApproval, ToolApprovalRequest
    from autogen_codeact.executors.tools.host_tools import ToolLike
    from autogen_codeact.executors.tools.limits import ToolLimits
    from autogen_codeact.executors.tools.policies import AllowTools, AskModel, AskPerson, ToolPolicy
    from autogen_codeact.executors.tools.tool import HostTool, ToolAnswer, ToolArgumentError

_HOME = {
    "AllowTools": "tools.policies",
    "ApproveTool": "tools.approval",
    "Artifact": "result",
    "AskModel": "tools.policies",
    "AskPerson": "tools.policies",
    "BubblewrapCommandLineCodeExecutor": "bubblewrap.executor",
    "BubblewrapCommandLineCodeExecutorConfig": "bubblewrap.executor",
    "CallOutcome": "result",
    "DEFAULT_IMAGE": "docker.image",
    "DockerCommandLineCodeExecutor": "docker.executor",
    "DockerCommandLineCodeExecutorConfig": "docker.executor",
    "ErrorInfo": "result",
    "ExecutionResult": "result",
    "HostTool": "tools.tool",
    "Limits": "limits",
    "NetworkConnection": "result",
    "Outcome": "result",
    "OutputChunk": "chunks",
    "SandboxCodeExecutor": "executor",
    "SandboxDied": "errors",
    "SandboxError": "errors",
    "SandboxFileError": "errors",
    "SandboxNameInUse": "errors",
    "SandboxNotStarted": "errors",
    "SandboxPool": "pool",
    "SandboxProtocolError": "errors",
    "SandboxStartError": "errors",
    "SandboxTimeout": "errors",
    "SandboxUnavailable": "errors",
    "State": "result",
    "ToolAnswer": "tools.tool",
    "ToolApproval": "tools.approval",
    "ToolApprovalRequest": "tools.approval",
    "ToolArgumentError": "tools.tool",
    "ToolCall": "result",
    "ToolLike": "tools.host_tools",
    "ToolLimits": "tools.limits",
    "ToolPolicy": "tools.policies",
    "choose_executor": "auto",
}

__all__ = [
    "DEFAULT_IMAGE",
    "AllowTools",
    "ApproveTool",
    "Artifact",
    "AskModel",
    "AskPerson",
    "BubblewrapCommandLineCodeExecutor",
    "BubblewrapCommandLineCodeExecutorConfig",
    "CallOutcome",
    "DockerCommandLineCodeExecutor",
    "DockerCommandLineCodeExecutorConfig",
    "ErrorInfo",
    "ExecutionResult",
    "HostTool",
    "Limits",
    "NetworkConnection",
    "Outcome",
    "OutputChunk",
    "SandboxCodeExecutor",
    "SandboxDied",
    "SandboxError",
    "SandboxFileError",
    "SandboxNameInUse",
    "SandboxNotStarted",
    "SandboxPool",
    "SandboxProtocolError",
    "SandboxStartError",
    "SandboxTimeout",
    "SandboxUnavailable",
    "State",
    "ToolAnswer",
    "ToolApproval",
    "ToolApprovalRequest",
    "ToolArgumentError",
    "ToolCall",
    "ToolLike",
    "ToolLimits",
    "ToolPolicy",
    "choose_executor",
]


def __getattr__(name: str) -> Any:
    # Each kind of sandbox brings libraries of its own; who takes one need not wait for those of the others.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
