"""How code runs: sandbox, session, result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.executors.auto import choose_executor
    from autogen_codeact.executors.bubblewrap import (
        BubblewrapCommandLineCodeExecutor,
        BubblewrapCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.cancellation import cancel_scope
    from autogen_codeact.executors.capabilities import (
        Capabilities,
        KnowsSandbox,
        ObservedExecutor,
        ReplaySandbox,
        SessionExecutor,
        ToolExecutor,
        capabilities_of,
    )
    from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor, DockerCommandLineCodeExecutorConfig
    from autogen_codeact.executors.executor import WORKSPACE, SandboxCodeExecutor
    from autogen_codeact.executors.pool import SandboxPool
    from autogen_codeact.executors.result import ExecutionResult
    from autogen_codeact.executors.tools.adapters import HostTool, to_image
    from autogen_codeact.executors.tools.approval import ToolApprovalRequest
    from autogen_codeact.executors.tools.executor_tools import dump_all, dump_approval
    from autogen_codeact.executors.tools.host_tools import ToolLike, dump_tools
    from autogen_codeact.executors.tools.omitted import omitting_functions, refuse_functions
    from autogen_codeact.executors.tools.policies import AllowTools, AskModel, AskPerson, ToolPolicy, loaded
    from autogen_codeact.sandbox.backends.docker.hosts import DockerHost, DockerTLS
    from autogen_codeact.sandbox.backends.docker.image import DEFAULT_IMAGE
    from autogen_codeact.sandbox.displays import Display
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
    from autogen_codeact.sandbox.facts import SandboxFacts, SandboxFiles
    from autogen_codeact.sandbox.files.filenames import printable
    from autogen_codeact.sandbox.files.manifest import MAX_FILES, Manifest, is_safe
    from autogen_codeact.sandbox.folding import fold_carriage_returns
    from autogen_codeact.sandbox.host.blocks import REFUSALS, combine
    from autogen_codeact.sandbox.host.chunks import OutputChunk
    from autogen_codeact.sandbox.host.languages import find_language
    from autogen_codeact.sandbox.host.waiting import in_thread
    from autogen_codeact.sandbox.limits import Limits
    from autogen_codeact.sandbox.pictures import BROKEN_PICTURE, PictureRefused, check_picture
    from autogen_codeact.sandbox.replay import ExternalEffectsError
    from autogen_codeact.sandbox.result import (
        STOPPED,
        Artifact,
        CallOutcome,
        ErrorInfo,
        NetworkConnection,
        Outcome,
        Result,
        State,
        ToolCall,
        format_duration,
        written_by_code,
    )
    from autogen_codeact.sandbox.run_context import RunContext
    from autogen_codeact.sandbox.tools.approval import ApproveTool, ToolApproval
    from autogen_codeact.sandbox.tools.broker import NotAllowed
    from autogen_codeact.sandbox.tools.limits import ToolLimits
    from autogen_codeact.sandbox.tools.terminal import ask_line
    from autogen_codeact.sandbox.tools.tool import HostToolProtocol, ToolAnswer, ToolArgumentError

_HOME = {
    "BROKEN_PICTURE": "autogen_codeact.sandbox.pictures",
    "PictureRefused": "autogen_codeact.sandbox.pictures",
    "check_picture": "autogen_codeact.sandbox.pictures",
    "AllowTools": "autogen_codeact.executors.tools.policies",
    "ApproveTool": "autogen_codeact.sandbox.tools.approval",
    "Artifact": "autogen_codeact.sandbox.result",
    "AskModel": "autogen_codeact.executors.tools.policies",
    "AskPerson": "autogen_codeact.executors.tools.policies",
    "BubblewrapCommandLineCodeExecutor": "autogen_codeact.executors.bubblewrap",
    "BubblewrapCommandLineCodeExecutorConfig": "autogen_codeact.executors.bubblewrap",
    "CallOutcome": "autogen_codeact.sandbox.result",
    "Capabilities": "autogen_codeact.executors.capabilities",
    "DEFAULT_IMAGE": "autogen_codeact.sandbox.backends.docker.image",
    "Display": "autogen_codeact.sandbox.displays",
    "DockerCommandLineCodeExecutor": "autogen_codeact.executors.docker",
    "DockerCommandLineCodeExecutorConfig": "autogen_codeact.executors.docker",
    "DockerHost": "autogen_codeact.sandbox.backends.docker.hosts",
    "DockerTLS": "autogen_codeact.sandbox.backends.docker.hosts",
    "ErrorInfo": "autogen_codeact.sandbox.result",
    "ExecutionResult": "autogen_codeact.executors.result",
    "ExternalEffectsError": "autogen_codeact.sandbox.replay",
    "HostTool": "autogen_codeact.executors.tools.adapters",
    "HostToolProtocol": "autogen_codeact.sandbox.tools.tool",
    "KnowsSandbox": "autogen_codeact.executors.capabilities",
    "Limits": "autogen_codeact.sandbox.limits",
    "MAX_FILES": "autogen_codeact.sandbox.files.manifest",
    "Manifest": "autogen_codeact.sandbox.files.manifest",
    "NetworkConnection": "autogen_codeact.sandbox.result",
    "NotAllowed": "autogen_codeact.sandbox.tools.broker",
    "ObservedExecutor": "autogen_codeact.executors.capabilities",
    "Outcome": "autogen_codeact.sandbox.result",
    "OutputChunk": "autogen_codeact.sandbox.host.chunks",
    "REFUSALS": "autogen_codeact.sandbox.host.blocks",
    "ReplaySandbox": "autogen_codeact.executors.capabilities",
    "Result": "autogen_codeact.sandbox.result",
    "RunContext": "autogen_codeact.sandbox.run_context",
    "SandboxCodeExecutor": "autogen_codeact.executors.executor",
    "SandboxDied": "autogen_codeact.sandbox.errors",
    "SandboxError": "autogen_codeact.sandbox.errors",
    "SandboxFacts": "autogen_codeact.sandbox.facts",
    "SandboxFileError": "autogen_codeact.sandbox.errors",
    "SandboxFiles": "autogen_codeact.sandbox.facts",
    "SandboxNameInUse": "autogen_codeact.sandbox.errors",
    "SandboxNotStarted": "autogen_codeact.sandbox.errors",
    "SandboxPool": "autogen_codeact.executors.pool",
    "SandboxProtocolError": "autogen_codeact.sandbox.errors",
    "SandboxStartError": "autogen_codeact.sandbox.errors",
    "SandboxTimeout": "autogen_codeact.sandbox.errors",
    "SandboxUnavailable": "autogen_codeact.sandbox.errors",
    "SessionExecutor": "autogen_codeact.executors.capabilities",
    "STOPPED": "autogen_codeact.sandbox.result",
    "State": "autogen_codeact.sandbox.result",
    "ToolAnswer": "autogen_codeact.sandbox.tools.tool",
    "ToolApproval": "autogen_codeact.sandbox.tools.approval",
    "ToolApprovalRequest": "autogen_codeact.executors.tools.approval",
    "ToolArgumentError": "autogen_codeact.sandbox.tools.tool",
    "ToolCall": "autogen_codeact.sandbox.result",
    "ToolExecutor": "autogen_codeact.executors.capabilities",
    "ToolLike": "autogen_codeact.executors.tools.host_tools",
    "ToolLimits": "autogen_codeact.sandbox.tools.limits",
    "ToolPolicy": "autogen_codeact.executors.tools.policies",
    "WORKSPACE": "autogen_codeact.executors.executor",
    "ask_line": "autogen_codeact.sandbox.tools.terminal",
    "cancel_scope": "autogen_codeact.executors.cancellation",
    "capabilities_of": "autogen_codeact.executors.capabilities",
    "choose_executor": "autogen_codeact.executors.auto",
    "combine": "autogen_codeact.sandbox.host.blocks",
    "dump_all": "autogen_codeact.executors.tools.executor_tools",
    "dump_approval": "autogen_codeact.executors.tools.executor_tools",
    "dump_tools": "autogen_codeact.executors.tools.host_tools",
    "format_duration": "autogen_codeact.sandbox.result",
    "omitting_functions": "autogen_codeact.executors.tools.omitted",
    "refuse_functions": "autogen_codeact.executors.tools.omitted",
    "fold_carriage_returns": "autogen_codeact.sandbox.folding",
    "find_language": "autogen_codeact.sandbox.host.languages",
    "in_thread": "autogen_codeact.sandbox.host.waiting",
    "is_safe": "autogen_codeact.sandbox.files.manifest",
    "loaded": "autogen_codeact.executors.tools.policies",
    "printable": "autogen_codeact.sandbox.files.filenames",
    "to_image": "autogen_codeact.executors.tools.adapters",
    "written_by_code": "autogen_codeact.sandbox.result",
}

__all__ = [
    "BROKEN_PICTURE",
    "DEFAULT_IMAGE",
    "MAX_FILES",
    "REFUSALS",
    "STOPPED",
    "WORKSPACE",
    "AllowTools",
    "ApproveTool",
    "Artifact",
    "AskModel",
    "AskPerson",
    "BubblewrapCommandLineCodeExecutor",
    "BubblewrapCommandLineCodeExecutorConfig",
    "CallOutcome",
    "Capabilities",
    "Display",
    "DockerCommandLineCodeExecutor",
    "DockerCommandLineCodeExecutorConfig",
    "DockerHost",
    "DockerTLS",
    "ErrorInfo",
    "ExecutionResult",
    "ExternalEffectsError",
    "HostTool",
    "HostToolProtocol",
    "KnowsSandbox",
    "Limits",
    "Manifest",
    "NetworkConnection",
    "NotAllowed",
    "ObservedExecutor",
    "Outcome",
    "OutputChunk",
    "PictureRefused",
    "ReplaySandbox",
    "Result",
    "RunContext",
    "SandboxCodeExecutor",
    "SandboxDied",
    "SandboxError",
    "SandboxFacts",
    "SandboxFileError",
    "SandboxFiles",
    "SandboxNameInUse",
    "SandboxNotStarted",
    "SandboxPool",
    "SandboxProtocolError",
    "SandboxStartError",
    "SandboxTimeout",
    "SandboxUnavailable",
    "SessionExecutor",
    "State",
    "ToolAnswer",
    "ToolApproval",
    "ToolApprovalRequest",
    "ToolArgumentError",
    "ToolCall",
    "ToolExecutor",
    "ToolLike",
    "ToolLimits",
    "ToolPolicy",
    "ask_line",
    "cancel_scope",
    "capabilities_of",
    "check_picture",
    "choose_executor",
    "combine",
    "dump_all",
    "dump_approval",
    "dump_tools",
    "find_language",
    "fold_carriage_returns",
    "format_duration",
    "in_thread",
    "is_safe",
    "loaded",
    "omitting_functions",
    "printable",
    "refuse_functions",
    "to_image",
    "written_by_code",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
