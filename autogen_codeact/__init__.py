"""A team of agents that writes code and runs it in a sandbox. Each name is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.agents import CodeActAgent as CodeActAgent
    from autogen_codeact.agents import CodeExecutorAgent as CodeExecutorAgent
    from autogen_codeact.executors import DockerCommandLineCodeExecutor as DockerCommandLineCodeExecutor
    from autogen_codeact.sandbox import AsyncSandbox as AsyncSandbox
    from autogen_codeact.sandbox import Sandbox as Sandbox
    from autogen_codeact.teams import Team as Team

__version__ = "0.1.0"


_NAMES = {
    "agents": "CodeActAgent CodeExecutorAgent",
    "executors": "DockerCommandLineCodeExecutor",
    "sandbox": "AsyncSandbox Sandbox",
    "teams": "Team",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)


def load_ipython_extension(shell: Any) -> None:
    """Add `%%sandbox` to a notebook, and have it show results as HTML: `%load_ext autogen_codeact`.

    Args:
        shell: IPython's shell.
    """
    import_module("autogen_codeact.integrations.notebook").load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Undo `load_ipython_extension`, and stop the sandboxes of the shell's cells.

    Args:
        shell: IPython's shell.
    """
    import_module("autogen_codeact.integrations.notebook").unload_ipython_extension(shell)
