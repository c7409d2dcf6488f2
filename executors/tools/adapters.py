"""AutoGen's types at the border of the sandbox library: images, cancellation tokens, approvals, and tools that users wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autogen_core import CancellationToken, Image
from autogen_core.tools import ImageResultContent, TextResultContent, ToolResult
from PIL import Image as PILImage

from autogen_codeact.sandbox.tools import approval
from autogen_codeact.sandbox.tools.answers import as_tool_image, to_answer
from autogen_codeact.sandbox.tools.approval import ApproveTool, ToolApproval
from autogen_codeact.sandbox.tools.function import LibraryTypes
from autogen_codeact.sandbox.tools.host_tool import HostTool as SandboxHostTool
from autogen_codeact.sandbox.types.tool import ToolAnswer, ToolImage

T = TypeVar("T")


def from_autogen(value: Any) -> Any:
    """Convert AutoGen's images to `ToolImage`s, and parts of its results to their content; return anything else as it is."""
    if isinstance(value, ImageResultContent | TextResultContent):
        value = value.content
    return as_tool_image(value.image if isinstance(value, Image) else value)


AUTOGEN = LibraryTypes(token=CancellationToken, images=(Image, PILImage.Image, ToolImage), convert=from_autogen)


class HostTool(SandboxHostTool):
    """A typed function as a host tool, as `autogen_codeact.sandbox.HostTool`; it may use AutoGen's tokens and images."""

    library = AUTOGEN


def answer_of(result: ToolResult, name: str) -> ToolAnswer:
    """Convert AutoGen's result of a tool: its texts, and its images beside them.

    Args:
        result: The result.
        name: The tool, for errors.

    Raises:
        RuntimeError: It says that the tool failed.
    """
    if result.is_error:
        raise RuntimeError(result.to_text("[image]").strip() or "the tool reported an error and said nothing of it")
    answer = to_answer(list(result.result), name, convert=from_autogen)
    return ToolAnswer("\n".join(map(str, answer.value)), answer.images)


async def with_token(run: Callable[[CancellationToken], Awaitable[T]]) -> T:
    """Run something that takes a cancellation token; the token is cancelled with the task."""
    token = CancellationToken()
    try:
        return await run(token)
    except asyncio.CancelledError:
        token.cancel()
        raise


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
        return await with_token(lambda token: approve(ToolApprovalRequest(**vars(request), cancellation_token=token)))

    return approve_with_token
