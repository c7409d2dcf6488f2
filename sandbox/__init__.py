"""Sandboxes for code that a model has written. Nothing here needs AutoGen; each name is imported when it is first used."""

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.sandbox.async_sandbox import AsyncSandbox as AsyncSandbox
    from autogen_codeact.sandbox.backends.docker.hosts import DockerHost as DockerHost
    from autogen_codeact.sandbox.backends.docker.hosts import DockerTLS as DockerTLS
    from autogen_codeact.sandbox.displays import Display as Display
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
    from autogen_codeact.sandbox.observers import BlockFinished as BlockFinished
    from autogen_codeact.sandbox.observers import BlockId as BlockId
    from autogen_codeact.sandbox.observers import BlockStarted as BlockStarted
    from autogen_codeact.sandbox.observers import CallFinished as CallFinished
    from autogen_codeact.sandbox.observers import CallIntent as CallIntent
    from autogen_codeact.sandbox.observers import Observer as Observer
    from autogen_codeact.sandbox.observers import Recorder as Recorder
    from autogen_codeact.sandbox.observers import SandboxStarted as SandboxStarted
    from autogen_codeact.sandbox.observers import SandboxStopped as SandboxStopped
    from autogen_codeact.sandbox.options import BubblewrapOptions as BubblewrapOptions
    from autogen_codeact.sandbox.options import DockerOptions as DockerOptions
    from autogen_codeact.sandbox.options import SandboxOptions as SandboxOptions
    from autogen_codeact.sandbox.pool import SandboxPool as SandboxPool
    from autogen_codeact.sandbox.result import Artifact as Artifact
    from autogen_codeact.sandbox.result import CallOutcome as CallOutcome
    from autogen_codeact.sandbox.result import ErrorInfo as ErrorInfo
    from autogen_codeact.sandbox.result import NetworkConnection as NetworkConnection
    from autogen_codeact.sandbox.result import Outcome as Outcome
    from autogen_codeact.sandbox.result import Result as Result
    from autogen_codeact.sandbox.result import State as State
    from autogen_codeact.sandbox.result import ToolCall as ToolCall
    from autogen_codeact.sandbox.sync_sandbox import Sandbox as Sandbox
    from autogen_codeact.sandbox.tools.approval import ApproveTool as ApproveTool
    from autogen_codeact.sandbox.tools.approval import ToolApproval as ToolApproval
    from autogen_codeact.sandbox.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from autogen_codeact.sandbox.tools.function import HostTool as HostTool
    from autogen_codeact.sandbox.tools.limits import ToolLimits as ToolLimits
    from autogen_codeact.sandbox.tools.source import ToolSource as ToolSource
    from autogen_codeact.sandbox.tools.tool import HostToolProtocol as HostToolProtocol
    from autogen_codeact.sandbox.tools.tool import ToolAnswer as ToolAnswer
    from autogen_codeact.sandbox.tools.tool import ToolImage as ToolImage

__getattr__, __dir__ = lazy_names(__name__)
