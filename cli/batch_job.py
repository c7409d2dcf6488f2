"""The options of one `codeact batch`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autogen_codeact.cli.agent_options import AgentChoice
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.sandbox_choice import SandboxChoice


@dataclass(frozen=True)
class LimitChoice:
    """How much a batch does at the same time, how often, and what it may use, as the user has written it.

    Args:
        concurrency: Tasks at the same time.
        attempts: How often a task is begun at most.
        backoff: Seconds before the second attempt.
        repeat: How many times each task runs.
        max_sandboxes: Sandboxes at the same time.
        sandbox_uses: How many tasks use a sandbox.
        model_calls_per_minute: Model calls that begin in a minute.
        tasks_per_minute: Attempts that begin in a minute.
        max_tokens: Tokens that the batch may use.
        max_cost: What it may cost.
        price: Prices of a million tokens: `PROMPT:COMPLETION`.
        max_seconds: Seconds after which the command ends.
        task_timeout: Seconds that one attempt may take.
    """

    concurrency: int = 4
    attempts: int = 3
    backoff: float = 1.0
    repeat: int = 1
    max_sandboxes: int | None = None
    sandbox_uses: int = 1
    model_calls_per_minute: float | None = None
    tasks_per_minute: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    price: str | None = None
    max_seconds: float | None = None
    task_timeout: float | None = None


@dataclass(frozen=True)
class BatchJob:
    """The options of one command.

    Args:
        tasks: File or folder with the tasks.
        out: Folder of the batch.
        limits: How much at the same time, and what may be used.
        model: The model.
        agent: The agent.
        sandbox: The sandboxes.
        limit: How many of the tasks; None for all.
        check: How answers are checked if a task does not say.
        accept_changes: Whether changed tasks and options are accepted.
        keep_going: Whether the batch goes on if its first tasks all fail with the same error.
        ray: Address of a Ray cluster, or None.
    """

    tasks: Path
    out: Path
    limits: LimitChoice
    model: ModelChoice
    agent: AgentChoice
    sandbox: SandboxChoice
    limit: int | None = None
    check: str | None = None
    accept_changes: bool = False
    keep_going: bool = False
    ray: str | None = None
