"""The sandbox of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autogen_codeact.cli.exit import CommandError, say, say_warnings
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.auto import choose_executor
from autogen_codeact.executors.executor import SandboxCodeExecutor


@asynccontextmanager
async def started(choice: SandboxChoice) -> AsyncIterator[SandboxCodeExecutor]:
    """Start the sandbox and stop it afterwards; print which one it is if it is not Docker."""
    say_warnings()
    if choice.image is not None and choice.kind == "bubblewrap":
        raise CommandError("--image is for Docker: leave it out, or use --sandbox docker.")
    try:
        executor = await choose_executor(choice.kind, **choice.options())
        if choice.kind == "auto" and isinstance(executor, BubblewrapCommandLineCodeExecutor):
            say("no Docker engine answers, so code runs in bubblewrap")
        assert isinstance(executor, SandboxCodeExecutor)
        await executor.start()
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    try:
        yield executor
    finally:
        await executor.stop()
