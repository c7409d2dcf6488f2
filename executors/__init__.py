"""How code runs: sandbox, session, result."""

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.executors.auto import choose_executor as choose_executor
    from autogen_codeact.executors.bubblewrap import (
        BubblewrapCommandLineCodeExecutor as BubblewrapCommandLineCodeExecutor,
    )
    from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor as DockerCommandLineCodeExecutor
    from autogen_codeact.executors.executor import SandboxCodeExecutor as SandboxCodeExecutor
    from autogen_codeact.executors.pool import ExecutorPool as ExecutorPool
    from autogen_codeact.executors.result import ExecutionResult as ExecutionResult
    from autogen_codeact.executors.tools.adapters import HostTool as HostTool
    from autogen_codeact.executors.tools.policies import AllowTools as AllowTools
    from autogen_codeact.executors.tools.policies import AskModel as AskModel
    from autogen_codeact.executors.tools.policies import AskPerson as AskPerson
    from autogen_codeact.sandbox.host.chunks import OutputChunk as OutputChunk
    from autogen_codeact.sandbox.tools.approval import ApproveTool as ApproveTool
    from autogen_codeact.sandbox.tools.approval import ToolApproval as ToolApproval
    from autogen_codeact.sandbox.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from autogen_codeact.sandbox.types.errors import SandboxDied as SandboxDied
    from autogen_codeact.sandbox.types.errors import SandboxError as SandboxError
    from autogen_codeact.sandbox.types.errors import SandboxFileError as SandboxFileError
    from autogen_codeact.sandbox.types.errors import SandboxNameInUse as SandboxNameInUse
    from autogen_codeact.sandbox.types.errors import SandboxNotStarted as SandboxNotStarted
    from autogen_codeact.sandbox.types.errors import SandboxProtocolError as SandboxProtocolError
    from autogen_codeact.sandbox.types.errors import SandboxStartError as SandboxStartError
    from autogen_codeact.sandbox.types.errors import SandboxTimeout as SandboxTimeout
    from autogen_codeact.sandbox.types.errors import SandboxUnavailable as SandboxUnavailable
    from autogen_codeact.sandbox.types.limits import Limits as Limits
    from autogen_codeact.sandbox.types.options import DEFAULT_IMAGE as DEFAULT_IMAGE
    from autogen_codeact.sandbox.types.result import Artifact as Artifact
    from autogen_codeact.sandbox.types.result import CallOutcome as CallOutcome
    from autogen_codeact.sandbox.types.result import ErrorInfo as ErrorInfo
    from autogen_codeact.sandbox.types.result import NetworkConnection as NetworkConnection
    from autogen_codeact.sandbox.types.result import Outcome as Outcome
    from autogen_codeact.sandbox.types.result import State as State
    from autogen_codeact.sandbox.types.result import ToolCall as ToolCall
    from autogen_codeact.sandbox.types.tool import HostToolProtocol as HostToolProtocol
    from autogen_codeact.sandbox.types.tool import ToolAnswer as ToolAnswer
    from autogen_codeact.sandbox.types.tool_limits import ToolLimits as ToolLimits

_NAMES = {
    "executors.auto": "choose_executor",
    "executors.bubblewrap": "BubblewrapCommandLineCodeExecutor",
    "executors.docker": "DockerCommandLineCodeExecutor",
    "executors.executor": "SandboxCodeExecutor",
    "executors.pool": "ExecutorPool",
    "executors.result": "ExecutionResult",
    "executors.tools.adapters": "HostTool",
    "executors.tools.policies": "AllowTools AskModel AskPerson",
    "sandbox.host.chunks": "OutputChunk",
    "sandbox.tools.approval": "ApproveTool ToolApproval ToolApprovalRequest",
    "sandbox.types.errors": (
        "SandboxDied SandboxError SandboxFileError SandboxNameInUse SandboxNotStarted SandboxProtocolError "
        "SandboxStartError SandboxTimeout SandboxUnavailable"
    ),
    "sandbox.types.limits": "Limits",
    "sandbox.types.options": "DEFAULT_IMAGE",
    "sandbox.types.result": "Artifact CallOutcome ErrorInfo NetworkConnection Outcome State ToolCall",
    "sandbox.types.tool": "HostToolProtocol ToolAnswer",
    "sandbox.types.tool_limits": "ToolLimits",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
