"""Asking somebody whether a call to a host tool may be made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autogen_core import CancellationToken


@dataclass(frozen=True)
class ToolApprovalRequest:
    """A call that waits for its approval; the tool gets arguments of its own, so changing these changes nothing.

    Args:
        name: The tool.
        arguments: Its arguments by name, as JSON gave them; not checked yet.
        signature: The tool's parameters and result as Python writes them.
        description: The tool's docstring.
        code: The block that calls it.
        language: The block's language.
        cancellation_token: Cancelled when nobody waits for the answer any more.
    """

    name: str
    arguments: Mapping[str, Any]
    signature: str
    description: str
    code: str
    language: str
    cancellation_token: CancellationToken


@dataclass(frozen=True)
class ToolApproval:
    """The answer.

    Args:
        approved: Whether the call may be made.
        reason: Why not, in a sentence that the calling code gets; may be empty for a yes.
    """

    approved: bool
    reason: str = ""


ApproveTool = Callable[[ToolApprovalRequest], Awaitable[ToolApproval]]
"""Asked once for each call, also for several at the same time; a call is made only on a yes."""
