"""The sandbox of a command, and the agents that work in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient
from pydantic import Field, ValidationError

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.budget import Budget, Prices
from autogen_codeact.cli.jobs import AgentChoice
from autogen_codeact.cli.output import CommandError, say, say_warnings
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.pool import choose_executor
from autogen_codeact.teams import Team, coder_executor_team
from codeact_sandbox import SandboxUnavailable
from codeact_sandbox.backends.docker.engine import EngineFailure, classify, connect

LANGUAGES = ("python", "sh", "bash")  # run by default, with and without --act


@asynccontextmanager
async def started(choice: SandboxChoice) -> AsyncIterator[SandboxCodeExecutor]:
    """Start the sandbox and stop it afterwards; print which one it is if it is not Docker."""
    say_warnings()
    if choice.work_dir is not None and not choice.work_dir.exists():
        say(f"{choice.work_dir} does not exist: it is created, and begins empty")
    try:
        # The folder is the user's: what the code made belongs there, the code itself does not.
        executor = await choose_executor(choice.kind, delete_tmp_files=True, **choice.options())
        if choice.kind == "auto" and isinstance(executor, BubblewrapCommandLineCodeExecutor):
            say(await asyncio.to_thread(_why_bubblewrap))
        await executor.start()
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    try:
        yield executor
    finally:
        await executor.stop()


def _why_bubblewrap() -> str:
    try:
        connect().close()
    except SandboxUnavailable as error:
        if classify(error) is EngineFailure.NO_PERMISSION:
            return f"code runs in bubblewrap. {error}"
    return "no Docker engine answers, so code runs in bubblewrap"


class Limits(Budget):
    """What `--budget` says."""

    max_retries: int = Field(default=3, ge=0)

    def for_agent(self) -> Budget:
        """Return the limits that an agent or a team keeps."""
        return Budget(**self.model_dump(exclude={"max_retries"}))


_LIMITS = [name.removeprefix("max_") for name in Limits.model_fields if name.startswith("max_")]


def read_limits(texts: Sequence[str] | None, model: str) -> Limits:
    """Return what an agent or a batch may use; raise a `CommandError` for an invalid limit or an unknown price."""
    values = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if name not in (*_LIMITS, "price") or not value:
            raise CommandError(f"--budget takes NAME=VALUE, not {text}; names are {', '.join(_LIMITS)} and price.")
        values[name] = value
    prices = _prices(values.pop("price")) if "price" in values else None
    if "cost" in values and (prices := prices or Prices.known(model)) is None:
        raise CommandError(
            "--budget cost=… needs --budget price=P:C, or the extra `prices` and a model that genai-prices knows."
        )
    try:
        return Limits.model_validate({"prices": prices, **{f"max_{name}": value for name, value in values.items()}})
    except ValidationError as error:
        problem = error.errors()[0]
        raise CommandError(f"--budget {str(problem['loc'][0]).removeprefix('max_')}: {problem['msg']}.") from None


def _prices(text: str) -> Prices:
    prompt, _, completion = text.partition(":")
    try:
        return Prices.model_validate({"prompt": prompt, "completion": completion})
    except ValidationError:
        raise CommandError(
            f"--budget price={text} is not a pair of prices, of a million tokens read and written, such as 2.5:10."
        ) from None


def make_agent(
    choice: AgentChoice,
    limits: Limits,
    client: ChatCompletionClient,
    executor: CodeExecutor,
    *,
    stream: bool,
    stream_output: bool,
) -> CodeActAgent | CodeExecutorAgent | Team:
    options: dict[str, Any] = {"model_client_stream": stream, "stream_output": stream_output}
    if choice.act:
        return CodeActAgent("coder", executor, model_client=client, budget=limits.for_agent(), **options)
    options["supported_languages"] = list(LANGUAGES)
    if choice.team:
        return coder_executor_team(client, executor, budget=limits.for_agent(), **options)
    return CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=limits.max_retries, **options)


def check_limits(choice: AgentChoice, limits: Limits) -> None:
    """Raise a `CommandError` if an agent does not keep one of the limits."""
    given = {name.removeprefix("max_") for name in limits.model_fields_set} - {"prices"}
    if choice.act or choice.team:
        wrong, others = given & {"retries"}, "an agent without --act and --team"
    else:
        wrong, others = given - {"retries"}, "--act and --team"
    if wrong:
        raise CommandError(f"--budget {min(wrong)} is for {others}.")
