"""The sandbox of a command, and the agents that work in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.cli.exit import CommandError, say, say_warnings
from autogen_codeact.cli.jobs import AgentChoice
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.auto import choose_executor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team, coder_executor_team

LANGUAGES = ("python", "sh", "bash")  # run by default, with and without --act


@asynccontextmanager
async def started(choice: SandboxChoice) -> AsyncIterator[SandboxCodeExecutor]:
    """Start the sandbox and stop it afterwards; print which one it is if it is not Docker."""
    say_warnings()
    if choice.image is not None and choice.kind == "bubblewrap":
        raise CommandError("--image is for Docker: leave it out, or use --sandbox docker.")
    if choice.work_dir is not None and not choice.work_dir.exists():
        say(f"{choice.work_dir} does not exist: it is created, and begins empty")
    try:
        executor = await choose_executor(choice.kind, **choice.options())
        if choice.kind == "auto" and isinstance(executor, BubblewrapCommandLineCodeExecutor):
            say("no Docker engine answers, so code runs in bubblewrap")
        await executor.start()
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    try:
        yield executor
    finally:
        await executor.stop()


def make_agent(
    choice: AgentChoice, client: ChatCompletionClient, executor: CodeExecutor, *, stream: bool, stream_output: bool
) -> CodeActAgent | CodeExecutorAgent | Team:
    """Return the agent or team that the options describe."""
    options: dict[str, Any] = {"model_client_stream": stream, "stream_output": stream_output}
    if choice.act:
        return CodeActAgent(
            "coder",
            executor,
            model_client=client,
            max_steps=choice.steps or 20,
            attempts=choice.attempts or 1,
            **options,
        )
    options["supported_languages"] = list(LANGUAGES)
    if choice.team:
        return coder_executor_team(client, executor, **options)
    retries = 3 if choice.retries is None else choice.retries
    return CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=retries, **options)
