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
from .tools.approval import ApproveTool, ToolApproval, ToolApprovalRequest
from .tools.host_tools import ToolLike
from .tools.limits import ToolLimits
from .tools.policies import AllowTools, AskModel, AskPerson, ToolPolicy
from .tools.tool import HostTool, ToolAnswer, ToolArgumentError

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
