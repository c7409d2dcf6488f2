"""AutoGen's types at the border of the sandbox library: images, results and cancellation tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from autogen_core import CancellationToken, Image
from autogen_core.tools import ImageResultContent, TextResultContent, ToolResult

from codeact_sandbox.tools.answers import as_tool_image, to_answer
from codeact_sandbox.tools.function import HostTool as HostTool  # noqa: PLC0414 - AutoGen's images are known then
from codeact_sandbox.types.tool import ToolAnswer

T = TypeVar("T")


@as_tool_image.register
def _of_image(value: Image) -> Any:
    return as_tool_image(value.image)


@as_tool_image.register(ImageResultContent)
@as_tool_image.register(TextResultContent)
def _of_content(value: Any) -> Any:
    return as_tool_image(value.content)


def answer_of(result: ToolResult, name: str) -> ToolAnswer:
    """Convert AutoGen's result of a tool: its texts, and its images beside them."""
    if result.is_error:
        raise RuntimeError(result.to_text("[image]").strip() or "the tool reported an error and said nothing of it")
    answer = to_answer(list(result.result), name)
    return ToolAnswer("\n".join(map(str, answer.value)), answer.images)


async def with_token(run: Callable[[CancellationToken], Awaitable[T]]) -> T:
    """Run something that takes a cancellation token; the token is cancelled with the task."""
    token = CancellationToken()
    try:
        return await run(token)
    except asyncio.CancelledError:
        token.cancel()
        raise
