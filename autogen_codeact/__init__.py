"""A team of agents that writes code and runs it in a sandbox. Each name is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.agents import CodeActAgent as CodeActAgent
    from autogen_codeact.agents import CodeExecutorAgent as CodeExecutorAgent
    from autogen_codeact.executors import DockerCommandLineCodeExecutor as DockerCommandLineCodeExecutor
    from autogen_codeact.teams import Team as Team
    from codeact_sandbox import AsyncSandbox as AsyncSandbox
    from codeact_sandbox import Sandbox as Sandbox


__version__ = "0.2.0"  # as in codeact_sandbox/types/version.py

_NAMES = {
    "autogen_codeact.agents": "CodeActAgent CodeExecutorAgent",
    "autogen_codeact.executors": "DockerCommandLineCodeExecutor",
    "codeact_sandbox": "AsyncSandbox Sandbox",
    "autogen_codeact.teams": "Team",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)


def load_ipython_extension(shell: Any) -> None:
    """Add `%%sandbox` to a notebook: `%load_ext autogen_codeact`.

    Args:
        shell: IPython's shell.
    """
    import_module("codeact_sandbox.integrations.notebook_magics").load_ipython_extension(shell)
