"""Sandbox, agents and teams in notebooks: `%load_ext autogen_codeact` and `show`."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

from functools import partial
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from autogen_codeact.integrations.notebook_live import show
from codeact_sandbox.integrations import notebook_magics

__all__ = ["load_ipython_extension", "show", "unload_ipython_extension"]

_VIEWS = {
    ("autogen_agentchat.base._task", "TaskResult"): "run",
    ("autogen_agentchat.base._chat_agent", "Response"): "response",
    ("autogen_agentchat.messages", "BaseAgentEvent"): "message",
    ("autogen_agentchat.messages", "BaseChatMessage"): "message",
}
"""AutoGen's types, and what stands before `_to_html` in the names of the functions that show them."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%%sandbox` and its companions to a shell, and have it show AutoGen's messages and results as HTML.

    Args:
        shell: The shell of the notebook or terminal.
    """
    notebook_magics.load_ipython_extension(shell)
    assert shell.display_formatter is not None
    for (module, name), view in _VIEWS.items():
        shell.display_formatter.formatters["text/html"].for_type_by_name(module, name, partial(_html, view))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop the sandboxes of a shell's cells, and show AutoGen's types as before.

    Args:
        shell: The shell.
    """
    notebook_magics.unload_ipython_extension(shell)
    assert shell.display_formatter is not None
    for module, name in _VIEWS:
        shell.display_formatter.formatters["text/html"].pop(f"{module}.{name}", None)


def _html(view: str, thing: Any) -> str:
    from autogen_codeact.integrations import notebook_html  # noqa: PLC0415 - AutoGen takes a second to import

    page: str = getattr(notebook_html, f"{view}_to_html")(thing)
    return page
