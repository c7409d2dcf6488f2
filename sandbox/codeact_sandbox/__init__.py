"""Sandboxes for code that a model has written. Nothing here needs AutoGen; each name is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from codeact_sandbox.host.chunks import OutputChunk as OutputChunk
    from codeact_sandbox.session.async_sandbox import AsyncSandbox as AsyncSandbox
    from codeact_sandbox.session.sandbox_pool import SandboxPool as SandboxPool
    from codeact_sandbox.session.sync_sandbox import Sandbox as Sandbox
    from codeact_sandbox.tools.approval import ToolApproval as ToolApproval
    from codeact_sandbox.tools.approval import ToolApprovalRequest as ToolApprovalRequest
    from codeact_sandbox.tools.function import HostTool as HostTool
    from codeact_sandbox.tools.mcp_client import McpServer as McpServer
    from codeact_sandbox.tools.source import ToolSource as ToolSource
    from codeact_sandbox.types.errors import SandboxDied as SandboxDied
    from codeact_sandbox.types.errors import SandboxError as SandboxError
    from codeact_sandbox.types.errors import SandboxFileError as SandboxFileError
    from codeact_sandbox.types.errors import SandboxNameInUse as SandboxNameInUse
    from codeact_sandbox.types.errors import SandboxNotStarted as SandboxNotStarted
    from codeact_sandbox.types.errors import SandboxProtocolError as SandboxProtocolError
    from codeact_sandbox.types.errors import SandboxStartError as SandboxStartError
    from codeact_sandbox.types.errors import SandboxTimeout as SandboxTimeout
    from codeact_sandbox.types.errors import SandboxUnavailable as SandboxUnavailable
    from codeact_sandbox.types.errors import Unsupported as Unsupported
    from codeact_sandbox.types.limits import Limits as Limits
    from codeact_sandbox.types.limits import ToolLimits as ToolLimits
    from codeact_sandbox.types.options import BubblewrapOptions as BubblewrapOptions
    from codeact_sandbox.types.options import DockerOptions as DockerOptions
    from codeact_sandbox.types.result import CodeFailed as CodeFailed
    from codeact_sandbox.types.result import ExecResult as ExecResult
    from codeact_sandbox.types.result import Result as Result
    from codeact_sandbox.types.secrets import Secret as Secret
    from codeact_sandbox.types.tool import ToolAnswer as ToolAnswer
    from codeact_sandbox.types.tool import ToolImage as ToolImage

_NAMES = {
    "codeact_sandbox.session.async_sandbox": "AsyncSandbox",
    "codeact_sandbox.host.chunks": "OutputChunk",
    "codeact_sandbox.session.sandbox_pool": "SandboxPool",
    "codeact_sandbox.session.sync_sandbox": "Sandbox",
    "codeact_sandbox.tools.approval": "ToolApproval ToolApprovalRequest",
    "codeact_sandbox.tools.function": "HostTool",
    "codeact_sandbox.tools.mcp_client": "McpServer",
    "codeact_sandbox.tools.source": "ToolSource",
    "codeact_sandbox.types.errors": (
        "SandboxDied SandboxError SandboxFileError SandboxNameInUse SandboxNotStarted SandboxProtocolError "
        "SandboxStartError SandboxTimeout SandboxUnavailable Unsupported"
    ),
    "codeact_sandbox.types.limits": "Limits ToolLimits",
    "codeact_sandbox.types.options": "BubblewrapOptions DockerOptions",
    "codeact_sandbox.types.result": "CodeFailed ExecResult Result",
    "codeact_sandbox.types.secrets": "Secret",
    "codeact_sandbox.types.tool": "ToolAnswer ToolImage",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)


def load_ipython_extension(shell: Any) -> None:
    """Add `%%sandbox` to a notebook: `%load_ext codeact_sandbox`.

    Args:
        shell: IPython's shell.
    """
    import_module("codeact_sandbox.integrations.notebook_magics").load_ipython_extension(shell)
