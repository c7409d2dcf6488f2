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
    from autogen_codeact.executors.capabilities import Capabilities as Capabilities
    from autogen_codeact.executors.capabilities import SessionExecutor as SessionExecutor
    from autogen_codeact.executors.capabilities import ToolExecutor as ToolExecutor
    from autogen_codeact.executors.capabilities import capabilities_of as capabilities_of
    from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor as DockerCommandLineCodeExecutor
    from autogen_codeact.executors.docker import (
        DockerCommandLineCodeExecutorConfig as DockerCommandLineCodeExecutorConfig,
    )
    from autogen_codeact.executors.executor import WORKSPACE as WORKSPACE
    from autogen_codeact.executors.executor import SandboxCodeExecutor as SandboxCodeExecutor
    from autogen_codeact.executors.executor import cancel_scope as cancel_scope
    from autogen_codeact.executors.pool import SandboxPool as SandboxPool
    from autogen_codeact.executors.result import ExecutionResult as ExecutionResult
    from autogen_codeact.executors.tools.adapters import HostTool as HostTool
    from autogen_codeact.executors.tools.adapters import to_image as to_image
    from autogen_codeact.executors.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from autogen_codeact.executors.tools.configs import dump_all as dump_all
    from autogen_codeact.executors.tools.configs import dump_approval as dump_approval
    from autogen_codeact.executors.tools.configs import dump_tools as dump_tools
    from autogen_codeact.executors.tools.configs import omitting_functions as omitting_functions
    from autogen_codeact.executors.tools.configs import refuse_functions as refuse_functions
    from autogen_codeact.executors.tools.host_tools import ToolLike as ToolLike
    from autogen_codeact.executors.tools.policies import AllowTools as AllowTools
    from autogen_codeact.executors.tools.policies import AskModel as AskModel
    from autogen_codeact.executors.tools.policies import AskPerson as AskPerson
    from autogen_codeact.executors.tools.policies import ToolPolicy as ToolPolicy
    from autogen_codeact.executors.tools.policies import loaded as loaded
    from autogen_codeact.sandbox.backends.docker.hosts import DockerHost as DockerHost
    from autogen_codeact.sandbox.backends.docker.hosts import DockerTLS as DockerTLS
    from autogen_codeact.sandbox.backends.docker.image import DEFAULT_IMAGE as DEFAULT_IMAGE
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
    from autogen_codeact.sandbox.facts import SandboxFacts as SandboxFacts
    from autogen_codeact.sandbox.facts import SandboxFiles as SandboxFiles
    from autogen_codeact.sandbox.files.filenames import printable as printable
    from autogen_codeact.sandbox.files.manifest import MAX_FILES as MAX_FILES
    from autogen_codeact.sandbox.files.manifest import Manifest as Manifest
    from autogen_codeact.sandbox.files.manifest import is_safe as is_safe
    from autogen_codeact.sandbox.folding import fold_carriage_returns as fold_carriage_returns
    from autogen_codeact.sandbox.host.blocks import REFUSALS as REFUSALS
    from autogen_codeact.sandbox.host.blocks import combine as combine
    from autogen_codeact.sandbox.host.chunks import OutputChunk as OutputChunk
    from autogen_codeact.sandbox.host.languages import find_language as find_language
    from autogen_codeact.sandbox.host.waiting import in_thread as in_thread
    from autogen_codeact.sandbox.limits import Limits as Limits
    from autogen_codeact.sandbox.pictures import BROKEN_PICTURE as BROKEN_PICTURE
    from autogen_codeact.sandbox.pictures import PictureRefused as PictureRefused
    from autogen_codeact.sandbox.pictures import check_picture as check_picture
    from autogen_codeact.sandbox.protocols import KnowsSandbox as KnowsSandbox
    from autogen_codeact.sandbox.protocols import ObservedExecutor as ObservedExecutor
    from autogen_codeact.sandbox.protocols import ReplaySandbox as ReplaySandbox
    from autogen_codeact.sandbox.replay import ExternalEffectsError as ExternalEffectsError
    from autogen_codeact.sandbox.result import STOPPED as STOPPED
    from autogen_codeact.sandbox.result import Artifact as Artifact
    from autogen_codeact.sandbox.result import CallOutcome as CallOutcome
    from autogen_codeact.sandbox.result import ErrorInfo as ErrorInfo
    from autogen_codeact.sandbox.result import NetworkConnection as NetworkConnection
    from autogen_codeact.sandbox.result import Outcome as Outcome
    from autogen_codeact.sandbox.result import Result as Result
    from autogen_codeact.sandbox.result import State as State
    from autogen_codeact.sandbox.result import ToolCall as ToolCall
    from autogen_codeact.sandbox.result import format_duration as format_duration
    from autogen_codeact.sandbox.result import written_by_code as written_by_code
    from autogen_codeact.sandbox.run_context import RunContext as RunContext
    from autogen_codeact.sandbox.tools.approval import ApproveTool as ApproveTool
    from autogen_codeact.sandbox.tools.approval import ToolApproval as ToolApproval
    from autogen_codeact.sandbox.tools.broker import NotAllowed as NotAllowed
    from autogen_codeact.sandbox.tools.limits import ToolLimits as ToolLimits
    from autogen_codeact.sandbox.tools.terminal import ask_line as ask_line
    from autogen_codeact.sandbox.tools.tool import HostToolProtocol as HostToolProtocol
    from autogen_codeact.sandbox.tools.tool import ToolAnswer as ToolAnswer
    from autogen_codeact.sandbox.tools.tool import ToolArgumentError as ToolArgumentError

__getattr__, __dir__ = lazy_names(__name__)
