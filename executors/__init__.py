"""How code runs: sandbox, session, result."""

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.executors.auto import choose_executor as choose_executor
    from autogen_codeact.executors.bubblewrap import (
        BubblewrapCommandLineCodeExecutor as BubblewrapCommandLineCodeExecutor,
    )
    from autogen_codeact.executors.bubblewrap import (
        BubblewrapCommandLineCodeExecutorConfig as BubblewrapCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor as DockerCommandLineCodeExecutor
    from autogen_codeact.executors.docker import (
        DockerCommandLineCodeExecutorConfig as DockerCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.executor import SandboxCodeExecutor as SandboxCodeExecutor
    from autogen_codeact.executors.pool import SandboxPool as SandboxPool
    from autogen_codeact.executors.result import ExecutionResult as ExecutionResult
    from autogen_codeact.executors.tools.adapters import HostTool as HostTool
    from autogen_codeact.executors.tools.host_tools import ToolLike as ToolLike
    from autogen_codeact.executors.tools.policies import AllowTools as AllowTools
    from autogen_codeact.executors.tools.policies import AskModel as AskModel
    from autogen_codeact.executors.tools.policies import AskPerson as AskPerson
    from autogen_codeact.executors.tools.policies import ToolPolicy as ToolPolicy
    from autogen_codeact.sandbox.backends.docker.image import DEFAULT_IMAGE as DEFAULT_IMAGE
    from autogen_codeact.sandbox.errors import SandboxDied as SandboxDied
    from autogen_codeact.sandbox.errors import SandboxError as SandboxError
    from autogen_codeact.sandbox.errors import SandboxFileError as SandboxFileError
    from autogen_codeact.sandbox.errors import SandboxNameInUse as SandboxNameInUse
    from autogen_codeact.sandbox.errors import SandboxNotStarted as SandboxNotStarted
    from autogen_codeact.sandbox.errors import SandboxProtocolError as SandboxProtocolError
    from autogen_codeact.sandbox.errors import SandboxStartError as SandboxStartError
    from autogen_codeact.sandbox.errors import SandboxTimeout as SandboxTimeout
    from autogen_codeact.sandbox.errors import SandboxUnavailable as SandboxUnavailable
    from autogen_codeact.sandbox.host.chunks import OutputChunk as OutputChunk
    from autogen_codeact.sandbox.limits import Limits as Limits
    from autogen_codeact.sandbox.result import Artifact as Artifact
    from autogen_codeact.sandbox.result import CallOutcome as CallOutcome
    from autogen_codeact.sandbox.result import ErrorInfo as ErrorInfo
    from autogen_codeact.sandbox.result import NetworkConnection as NetworkConnection
    from autogen_codeact.sandbox.result import Outcome as Outcome
    from autogen_codeact.sandbox.result import State as State
    from autogen_codeact.sandbox.result import ToolCall as ToolCall
    from autogen_codeact.sandbox.tools.approval import ApproveTool as ApproveTool
    from autogen_codeact.sandbox.tools.approval import ToolApproval as ToolApproval
    from autogen_codeact.sandbox.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from autogen_codeact.sandbox.tools.limits import ToolLimits as ToolLimits
    from autogen_codeact.sandbox.tools.tool import HostToolProtocol as HostToolProtocol
    from autogen_codeact.sandbox.tools.tool import ToolAnswer as ToolAnswer
    from autogen_codeact.sandbox.tools.tool import ToolArgumentError as ToolArgumentError

__getattr__, __dir__ = lazy_names(__name__)
