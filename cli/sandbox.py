"""The sandbox of a command."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autogen_core.code_executor import CodeExecutor, CodeResult

from autogen_codeact.cli.exit import CommandError, say, say_warnings
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from autogen_codeact.executors.auto import UNSANDBOXED, choose_executor


@asynccontextmanager
async def started(choice: SandboxChoice) -> AsyncIterator[CodeExecutor]:
    """Start the sandbox and stop it afterwards; print which one it is if it is not Docker."""
    say_warnings()
    if choice.image is not None and choice.kind in ("bubblewrap", "none"):
        raise CommandError(f"--image is for Docker: leave it out, or use --sandbox docker instead of {choice.kind}.")
    if choice.allow_domains and choice.kind == "none":
        raise CommandError(
            "--allow-domain is for a sandbox: without one the code reaches every host. Leave one of them out."
        )
    if choice.allow_pip and choice.kind == "none":
        raise CommandError("--allow-pip is for a sandbox: without one the code uses this machine's pip. Leave one out.")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=UNSANDBOXED)  # it is printed below
            executor = await choose_executor(choice.kind, **choice.options())
        if choice.kind == "none":
            say(f"warning: {UNSANDBOXED}")
        elif choice.kind == "auto" and isinstance(executor, BubblewrapCommandLineCodeExecutor):
            say("no Docker engine answers, so code runs in bubblewrap")
        await executor.start()
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    try:
        yield executor
    finally:
        await executor.stop()


def as_result(result: CodeResult, seconds: float) -> ExecutionResult:
    """Return the result of any executor with the fields that ours have."""
    if isinstance(result, ExecutionResult):
        return result
    return ExecutionResult(
        exit_code=result.exit_code,
        output=result.output,
        code_file=getattr(result, "code_file", None),
        outcome="ok" if result.exit_code == 0 else "error",
        duration_s=seconds,
    )
