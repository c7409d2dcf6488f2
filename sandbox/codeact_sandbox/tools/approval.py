"""Approval of calls to host tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolApprovalRequest:
    """A call that waits for its approval; the tool gets a copy of the arguments, so changing these changes nothing.

    Args:
        name: The tool.
        arguments: Its arguments by name, as JSON gave them; not checked yet.
        signature: The tool's parameters and result as Python writes them.
        description: The tool's docstring.
        code: The block that calls it.
        language: The block's language.
        origin: What the caller of the block gave as `RunContext.origin`.
    """

    name: str
    arguments: Mapping[str, Any]
    signature: str
    description: str
    code: str
    language: str
    origin: object = None


@dataclass(frozen=True)
class ToolApproval:
    """The answer.

    Args:
        approved: Whether the call may be made.
        reason: Why not, in a sentence that the calling code gets; may be empty if it is approved.
    """

    approved: bool
    reason: str = ""


ApproveTool = Callable[[ToolApprovalRequest], Awaitable[ToolApproval]]
"""Called for each call, also for several at the same time, and cancelled when nobody waits for the
answer any more; a call is made only if it is approved."""
