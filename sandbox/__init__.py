"""Sandboxes for code that a model has written. Nothing here needs AutoGen; each name is imported when it is first used."""

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.sandbox.async_sandbox import AsyncSandbox as AsyncSandbox
    from autogen_codeact.sandbox.host.chunks import OutputChunk as OutputChunk
    from autogen_codeact.sandbox.pool import SandboxPool as SandboxPool
    from autogen_codeact.sandbox.sync_sandbox import Sandbox as Sandbox
    from autogen_codeact.sandbox.tools.approval import ApproveTool as ApproveTool
    from autogen_codeact.sandbox.tools.approval import ToolApproval as ToolApproval
    from autogen_codeact.sandbox.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from autogen_codeact.sandbox.tools.function import HostTool as HostTool
    from autogen_codeact.sandbox.tools.source import ToolSource as ToolSource
    from autogen_codeact.sandbox.types.displays import Display as Display
    from autogen_codeact.sandbox.types.docker_hosts import DockerHost as DockerHost
    from autogen_codeact.sandbox.types.docker_hosts import DockerTLS as DockerTLS
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
    from autogen_codeact.sandbox.types.observers import BlockFinished as BlockFinished
    from autogen_codeact.sandbox.types.observers import BlockId as BlockId
    from autogen_codeact.sandbox.types.observers import BlockStarted as BlockStarted
    from autogen_codeact.sandbox.types.observers import CallFinished as CallFinished
    from autogen_codeact.sandbox.types.observers import CallIntent as CallIntent
    from autogen_codeact.sandbox.types.observers import Observer as Observer
    from autogen_codeact.sandbox.types.observers import Recorder as Recorder
    from autogen_codeact.sandbox.types.observers import SandboxStarted as SandboxStarted
    from autogen_codeact.sandbox.types.observers import SandboxStopped as SandboxStopped
    from autogen_codeact.sandbox.types.options import BubblewrapOptions as BubblewrapOptions
    from autogen_codeact.sandbox.types.options import DockerOptions as DockerOptions
    from autogen_codeact.sandbox.types.options import SandboxOptions as SandboxOptions
    from autogen_codeact.sandbox.types.result import Artifact as Artifact
    from autogen_codeact.sandbox.types.result import CallOutcome as CallOutcome
    from autogen_codeact.sandbox.types.result import ErrorInfo as ErrorInfo
    from autogen_codeact.sandbox.types.result import NetworkConnection as NetworkConnection
    from autogen_codeact.sandbox.types.result import Outcome as Outcome
    from autogen_codeact.sandbox.types.result import Result as Result
    from autogen_codeact.sandbox.types.result import State as State
    from autogen_codeact.sandbox.types.result import ToolCall as ToolCall
    from autogen_codeact.sandbox.types.tool import HostToolProtocol as HostToolProtocol
    from autogen_codeact.sandbox.types.tool import ToolAnswer as ToolAnswer
    from autogen_codeact.sandbox.types.tool import ToolImage as ToolImage
    from autogen_codeact.sandbox.types.tool_limits import ToolLimits as ToolLimits

_NAMES = {
    "sandbox.async_sandbox": "AsyncSandbox",
    "sandbox.host.chunks": "OutputChunk",
    "sandbox.pool": "SandboxPool",
    "sandbox.sync_sandbox": "Sandbox",
    "sandbox.tools.approval": "ApproveTool ToolApproval ToolApprovalRequest",
    "sandbox.tools.function": "HostTool",
    "sandbox.tools.source": "ToolSource",
    "sandbox.types.displays": "Display",
    "sandbox.types.docker_hosts": "DockerHost DockerTLS",
    "sandbox.types.errors": (
        "SandboxDied SandboxError SandboxFileError SandboxNameInUse SandboxNotStarted SandboxProtocolError "
        "SandboxStartError SandboxTimeout SandboxUnavailable"
    ),
    "sandbox.types.limits": "Limits",
    "sandbox.types.observers": (
        "BlockFinished BlockId BlockStarted CallFinished CallIntent Observer Recorder SandboxStarted SandboxStopped"
    ),
    "sandbox.types.options": "BubblewrapOptions DockerOptions SandboxOptions",
    "sandbox.types.result": "Artifact CallOutcome ErrorInfo NetworkConnection Outcome Result State ToolCall",
    "sandbox.types.tool": "HostToolProtocol ToolAnswer ToolImage",
    "sandbox.types.tool_limits": "ToolLimits",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
