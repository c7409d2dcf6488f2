"""How code runs: sandbox, session, result."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if __name__ == "executors":
    raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)

if TYPE_CHECKING:
    from autogen_codeact.executors.bubblewrap import (
        BubblewrapCommandLineCodeExecutor as BubblewrapCommandLineCodeExecutor,
    )
    from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor as DockerCommandLineCodeExecutor
    from autogen_codeact.executors.pool import ExecutorPool as ExecutorPool
    from autogen_codeact.executors.result import ExecutionResult as ExecutionResult
    from autogen_codeact.executors.tools.adapters import HostTool as HostTool
    from autogen_codeact.executors.tools.later import Later as Later
    from autogen_codeact.executors.tools.policies import AllowTools as AllowTools
    from autogen_codeact.executors.tools.policies import AskPerson as AskPerson
    from codeact_sandbox.host.chunks import OutputChunk as OutputChunk
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
    from codeact_sandbox.types.limits import ToolLimits as ToolLimits
    from codeact_sandbox.types.secrets import Secret as Secret
    from codeact_sandbox.types.tool import ToolAnswer as ToolAnswer

_NAMES = {
    "autogen_codeact.executors.bubblewrap": "BubblewrapCommandLineCodeExecutor",
    "autogen_codeact.executors.docker": "DockerCommandLineCodeExecutor",
    "autogen_codeact.executors.pool": "ExecutorPool",
    "autogen_codeact.executors.result": "ExecutionResult",
    "autogen_codeact.executors.tools.adapters": "HostTool",
    "autogen_codeact.executors.tools.later": "Later",
    "autogen_codeact.executors.tools.policies": "AllowTools AskPerson",
    "codeact_sandbox.host.chunks": "OutputChunk",
    "codeact_sandbox.tools.approval": "ToolApproval ToolApprovalRequest",
    "codeact_sandbox.types.errors": (
        "SandboxDied SandboxError SandboxFileError SandboxNameInUse SandboxNotStarted SandboxProtocolError "
        "SandboxStartError SandboxTimeout SandboxUnavailable"
    ),
    "codeact_sandbox.types.limits": "Limits ToolLimits",
    "codeact_sandbox.types.secrets": "Secret",
    "codeact_sandbox.types.tool": "ToolAnswer",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
