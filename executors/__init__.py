"""How code runs: sandbox, session, result."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

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
    from codeact_sandbox.host.chunks import OutputChunk as OutputChunk
    from codeact_sandbox.tools.approval import ApproveTool as ApproveTool
    from codeact_sandbox.tools.approval import ToolApproval as ToolApproval
    from codeact_sandbox.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from codeact_sandbox.types.errors import SandboxDied as SandboxDied
    from codeact_sandbox.types.errors import SandboxError as SandboxError
    from codeact_sandbox.types.errors import SandboxFileError as SandboxFileError
    from codeact_sandbox.types.errors import SandboxNameInUse as SandboxNameInUse
    from codeact_sandbox.types.errors import SandboxNotStarted as SandboxNotStarted
    from codeact_sandbox.types.errors import SandboxProtocolError as SandboxProtocolError
    from codeact_sandbox.types.errors import SandboxStartError as SandboxStartError
    from codeact_sandbox.types.errors import SandboxTimeout as SandboxTimeout
    from codeact_sandbox.types.errors import SandboxUnavailable as SandboxUnavailable
    from codeact_sandbox.types.limits import Limits as Limits
    from codeact_sandbox.types.options import DEFAULT_IMAGE as DEFAULT_IMAGE
    from codeact_sandbox.types.result import Artifact as Artifact
    from codeact_sandbox.types.result import CallOutcome as CallOutcome
    from codeact_sandbox.types.result import ErrorInfo as ErrorInfo
    from codeact_sandbox.types.result import NetworkConnection as NetworkConnection
    from codeact_sandbox.types.result import Outcome as Outcome
    from codeact_sandbox.types.result import State as State
    from codeact_sandbox.types.result import ToolCall as ToolCall
    from codeact_sandbox.types.tool import HostToolProtocol as HostToolProtocol
    from codeact_sandbox.types.tool import ToolAnswer as ToolAnswer
    from codeact_sandbox.types.tool_limits import ToolLimits as ToolLimits

_NAMES = {
    "autogen_codeact.executors.auto": "choose_executor",
    "autogen_codeact.executors.bubblewrap": "BubblewrapCommandLineCodeExecutor",
    "autogen_codeact.executors.docker": "DockerCommandLineCodeExecutor",
    "autogen_codeact.executors.executor": "SandboxCodeExecutor",
    "autogen_codeact.executors.pool": "ExecutorPool",
    "autogen_codeact.executors.result": "ExecutionResult",
    "autogen_codeact.executors.tools.adapters": "HostTool",
    "autogen_codeact.executors.tools.policies": "AllowTools AskModel AskPerson",
    "codeact_sandbox.host.chunks": "OutputChunk",
    "codeact_sandbox.tools.approval": "ApproveTool ToolApproval ToolApprovalRequest",
    "codeact_sandbox.types.errors": (
        "SandboxDied SandboxError SandboxFileError SandboxNameInUse SandboxNotStarted SandboxProtocolError "
        "SandboxStartError SandboxTimeout SandboxUnavailable"
    ),
    "codeact_sandbox.types.limits": "Limits",
    "codeact_sandbox.types.options": "DEFAULT_IMAGE",
    "codeact_sandbox.types.result": "Artifact CallOutcome ErrorInfo NetworkConnection Outcome State ToolCall",
    "codeact_sandbox.types.tool": "HostToolProtocol ToolAnswer",
    "codeact_sandbox.types.tool_limits": "ToolLimits",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
