"""`Sandbox` and `AsyncSandbox` as one: cases that both must stand are written once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from codeact_sandbox import AsyncSandbox, Sandbox
from codeact_sandbox.sync_sandbox import Forward, Job

# Each engine and each face once: `Sandbox` runs `AsyncSandbox` in a thread, whatever the engine.
EACH = [("docker", "sync"), ("bubblewrap", "async")]


class Awaited:
    """An object whose methods wait, as one whose methods are awaited."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await asyncio.to_thread(value, *args, **kwargs)
            return Awaited(result) if isinstance(result, Job | Forward) else result

        return call


@asynccontextmanager
async def sandbox(backend: str, face: str, **options: Any) -> AsyncIterator[Any]:
    """Start a sandbox with the methods of `AsyncSandbox`; `face` is "async", or "sync" for `Sandbox`."""
    if face == "async":
        async with AsyncSandbox(backend, **options) as box:  # type: ignore[arg-type]
            yield box
        return
    box = Sandbox(backend, **options)  # type: ignore[arg-type]
    try:
        await asyncio.to_thread(box.start)
        yield Awaited(box)
    finally:
        await asyncio.to_thread(box.stop)
