"""`codeact mcp`: a sandbox for the client of an MCP server on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine
from typing import Any

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from codeact_sandbox import AsyncSandbox

NO_MCP = "The Python package `mcp` is missing. Install it: pip install 'mcp<3'"


def serve_mcp(choice: SandboxChoice) -> int:
    """Serve until the client closes standard input."""
    try:
        from codeact_sandbox.integrations.mcp_server import make_server  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise CommandError(NO_MCP) from error
    sandbox = sandbox_of(choice)
    return asyncio.run(_serve(make_server(sandbox).run_stdio_async(), sandbox))


def sandbox_of(choice: SandboxChoice) -> AsyncSandbox:
    """Make the sandbox that the options describe."""
    if choice.mode == "process":
        raise CommandError("codeact mcp has one live interpreter: leave --mode process out.")
    if choice.kind == "none":
        raise CommandError("codeact mcp runs code in a sandbox only: use --sandbox auto, docker or bubblewrap.")
    try:
        return AsyncSandbox(choice.kind, **choice.options())
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error


async def _serve(work: Coroutine[Any, Any, None], sandbox: AsyncSandbox) -> int:
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[int] = loop.create_future()

    def interrupt(number: int) -> None:
        if not interrupted.done():
            interrupted.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, interrupt, number)
    serving = asyncio.ensure_future(work)
    waiting: set[asyncio.Future[Any]] = {serving, interrupted}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
        return 0
    await sandbox.stop()
    # A thread of the package `mcp` is blocked in reading standard input, and a normal exit would wait for it.
    os._exit(128 + interrupted.result())
