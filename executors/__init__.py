"""How code runs: sandbox, session, result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.executors.auto import choose_executor
    from autogen_codeact.executors.bubblewrap import (
        BubblewrapCommandLineCodeExecutor,
        BubblewrapCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor, DockerCommandLineCodeExecutorConfig
    from autogen_codeact.executors.executor import SandboxCodeExecutor
    from autogen_codeact.executors.pool import SandboxPool
    from autogen_codeact.executors.result import ExecutionResult
    from autogen_codeact.executors.tools.host_tools import ToolLike
    from autogen_codeact.executors.tools.policies import AllowTools, AskModel, AskPerson, ToolPolicy
    from autogen_codeact.sandbox.backends.docker.image import DEFAULT_IMAGE
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
    from autogen_codeact.sandbox.result import (
        Artifact,
        CallOutcome,
        ErrorInfo,
        NetworkConnection,
        Outcome,
        State,
        ToolCall,
    )
    from autogen_codeact.sandbox.tools.approval import ApproveTool, ToolApproval, ToolApprovalRequest
    from autogen_codeact.sandbox.tools.limits import ToolLimits
    from autogen_codeact.sandbox.tools.tool import HostTool, ToolAnswer, ToolArgumentError

_HOME = {
    "AllowTools": "autogen_codeact.executors.tools.policies",
    "ApproveTool": "autogen_codeact.sandbox.tools.approval",
    "Artifact": "autogen_codeact.sandbox.result",
    "AskModel": "autogen_codeact.executors.tools.policies",
    "AskPerson": "autogen_codeact.executors.tools.policies",
    "BubblewrapCommandLineCodeExecutor": "autogen_codeact.executors.bubblewrap",
    "BubblewrapCommandLineCodeExecutorConfig": "autogen_codeact.executors.bubblewrap",
    "CallOutcome": "autogen_codeact.sandbox.result",
    "DEFAULT_IMAGE": "autogen_codeact.sandbox.backends.docker.image",
    "DockerCommandLineCodeExecutor": "autogen_codeact.executors.docker",
    "DockerCommandLineCodeExecutorConfig": "autogen_codeact.executors.docker",
    "ErrorInfo": "autogen_codeact.sandbox.result",
    "ExecutionResult": "autogen_codeact.executors.result",
    "HostTool": "autogen_codeact.sandbox.tools.tool",
    "Limits": "autogen_codeact.sandbox.limits",
    "NetworkConnection": "autogen_codeact.sandbox.result",
    "Outcome": "autogen_codeact.sandbox.result",
    "OutputChunk": "autogen_codeact.sandbox.host.chunks",
    "SandboxCodeExecutor": "autogen_codeact.executors.executor",
    "SandboxDied": "autogen_codeact.sandbox.errors",
    "SandboxError": "autogen_codeact.sandbox.errors",
    "SandboxFileError": "autogen_codeact.sandbox.errors",
    "SandboxNameInUse": "autogen_codeact.sandbox.errors",
    "SandboxNotStarted": "autogen_codeact.sandbox.errors",
    "SandboxPool": "autogen_codeact.executors.pool",
    "SandboxProtocolError": "autogen_codeact.sandbox.errors",
    "SandboxStartError": "autogen_codeact.sandbox.errors",
    "SandboxTimeout": "autogen_codeact.sandbox.errors",
    "SandboxUnavailable": "autogen_codeact.sandbox.errors",
    "State": "autogen_codeact.sandbox.result",
    "ToolAnswer": "autogen_codeact.sandbox.tools.tool",
    "ToolApproval": "autogen_codeact.sandbox.tools.approval",
    "ToolApprovalRequest": "autogen_codeact.sandbox.tools.approval",
    "ToolArgumentError": "autogen_codeact.sandbox.tools.tool",
    "ToolCall": "autogen_codeact.sandbox.result",
    "ToolLike": "autogen_codeact.executors.tools.host_tools",
    "ToolLimits": "autogen_codeact.sandbox.tools.limits",
    "ToolPolicy": "autogen_codeact.executors.tools.policies",
    "choose_executor": "autogen_codeact.executors.auto",
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
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
