"""The sandbox of a command, and the agents that work in it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.budget import Budget, Prices
from autogen_codeact.cli.exit import CommandError, say, say_warnings
from autogen_codeact.cli.jobs import AgentChoice, CostChoice
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


def read_budget(cost: CostChoice, spec: str | None) -> Budget:
    """Return what a model may cost, with its prices; raise a `CommandError` if that is not known, or no amount."""
    prices = _prices(cost.price) or Prices.known(spec or "")
    if cost.max_cost is not None and prices is None:
        raise CommandError(
            "--max-cost needs --price P:C, or the extra `prices` and a model that genai-prices knows: the cost is not known."
        )
    if cost.max_cost is not None and not 0 < cost.max_cost < math.inf:
        raise CommandError(f"--max-cost {cost.max_cost:g} is not an amount above 0.")
    return Budget(max_cost=cost.max_cost, prices=prices)


def _prices(text: str | None) -> Prices | None:
    if text is None:
        return None
    parts = text.split(":")
    with suppress(ValueError):
        if len(parts) == 2:
            return Prices(prompt=float(parts[0]), completion=float(parts[1]))
    raise CommandError(f"--price {text} is not a pair of prices, of a million tokens read and written, such as 2.5:10.")


def make_agent(
    choice: AgentChoice,
    client: ChatCompletionClient,
    executor: CodeExecutor,
    budget: Budget | None = None,
    *,
    stream: bool,
    stream_output: bool,
) -> CodeActAgent | CodeExecutorAgent | Team:
    """Return the agent or team that the options describe."""
    budget = budget if budget is not None and budget.max_cost is not None else None
    options: dict[str, Any] = {"model_client_stream": stream, "stream_output": stream_output}
    if choice.act:
        return CodeActAgent(
            "coder",
            executor,
            model_client=client,
            budget=(budget or Budget()).model_copy(update={"max_steps": choice.steps}),
            **options,
        )
    options["supported_languages"] = list(LANGUAGES)
    if choice.team:
        return coder_executor_team(client, executor, budget=budget, **options)
    retries = 3 if choice.retries is None else choice.retries
    return CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=retries, **options)
