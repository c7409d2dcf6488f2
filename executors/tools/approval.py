"""Approval of calls to host tools, with AutoGen's cancellation token."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from autogen_core import CancellationToken

from autogen_codeact.executors.tools.adapters import with_token
from autogen_codeact.sandbox.tools import approval
from autogen_codeact.sandbox.tools.approval import ApproveTool, ToolApproval


@dataclass(frozen=True)
class ToolApprovalRequest(approval.ToolApprovalRequest):
    """A call that waits for its approval; the tool gets a copy of the arguments, so changing these changes nothing.

    Args:
        name: The tool.
        arguments: Its arguments by name, as JSON gave them; not checked yet.
        signature: The tool's parameters and result as Python writes them.
        description: The tool's docstring.
        code: The block that calls it.
        language: The block's language.
        cancellation_token: Cancelled when nobody waits for the answer any more.
    """

    cancellation_token: CancellationToken = field(default_factory=CancellationToken)


def with_tokens(approve: ApproveTool | None) -> ApproveTool | None:
    """Return an approval function whose requests have a cancellation token."""
    if approve is None:
        return None

    async def approve_with_token(request: approval.ToolApprovalRequest) -> ToolApproval:
        values = {each.name: getattr(request, each.name) for each in fields(approval.ToolApprovalRequest)}
        return await with_token(lambda token: approve(ToolApprovalRequest(**values, cancellation_token=token)))

    return approve_with_token
