"""Input of a user at the terminal, as a participant of a team."""

from __future__ import annotations

from autogen_core import CancellationToken

from autogen_codeact.executors.tools.adapters import run_cancellable
from codeact_sandbox.tools.terminal import ask_line
from codeact_sandbox.types.filenames import printable


async def ask_in_terminal(prompt: str, cancellation_token: CancellationToken | None = None) -> str:
    """Ask the user at the terminal; pass it to AutoGen's agent: `UserProxyAgent("user", input_func=ask_in_terminal)`.

    AutoGen's own function holds a thread until the user has answered, also after a cancellation. This one holds none, so many
    users may be asked for hours; they are asked one after the other, and not while `AskPerson` has a question.

    Args:
        prompt: The question.
        cancellation_token: Withdraws it.

    Returns:
        The line that the user typed.

    Raises:
        EOFError: There is no terminal.
    """
    return await run_cancellable(ask_line(printable(prompt)), cancellation_token or CancellationToken())
