"""AutoGen's types at the border of the sandbox library: images, results and cancellation tokens."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
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


async def run_cancellable(call: Coroutine[Any, Any, T], token: CancellationToken) -> T:
    """Await `call`, and cancel it when the token is cancelled, in any thread, also if `call` ignores the token."""
    me = asyncio.current_task()
    cancels_before = me.cancelling() if me else 0
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(call)
    running = weakref.ref(task)  # a token keeps its callbacks for as long as it lives

    def cancel() -> None:
        live = running()
        if live is not None and not live.done() and not loop.is_closed():
            loop.call_soon_threadsafe(live.cancel)

    token.add_callback(cancel)
    value = await task
    # AutoGen's local executor returns an exit code when it is cancelled; the caller must not continue.
    if token.is_cancelled() or (me and me.cancelling() > cancels_before):
        raise asyncio.CancelledError
    return value
