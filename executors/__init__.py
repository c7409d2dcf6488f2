"""How code runs: sandbox, session, result."""

from .auto import choose_executor
from .bubblewrap.executor import BubblewrapCommandLineCodeExecutor, BubblewrapCommandLineCodeExecutorConfig
from .chunks import OutputChunk
from .docker.executor import DockerCommandLineCodeExecutor, DockerCommandLineCodeExecutorConfig
from .docker.image import DEFAULT_IMAGE
from .errors import (
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
from .executor import SandboxCodeExecutor
from .limits import Limits
from .pool import SandboxPool
from .result import Artifact, CallOutcome, ErrorInfo, ExecutionResult, NetworkConnection, Outcome, State, ToolCall
from .tools.approval import ToolApproval, ToolApprovalRequest
from .tools.limits import ToolLimits

__all__ = [
    "DEFAULT_IMAGE",
    "Artifact",
    "BubblewrapCommandLineCodeExecutor",
    "BubblewrapCommandLineCodeExecutorConfig",
    "CallOutcome",
    "DockerCommandLineCodeExecutor",
    "DockerCommandLineCodeExecutorConfig",
    "ErrorInfo",
    "ExecutionResult",
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
    "ToolApproval",
    "ToolApprovalRequest",
    "ToolCall",
    "ToolLimits",
    "choose_executor",
]
