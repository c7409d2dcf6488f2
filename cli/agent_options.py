"""The options of the agent that works on a task, in one place; nothing here is slow to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.sandbox_options import sandbox_option
from autogen_codeact.cli.shared_options import Command, with_options

agent_option = partial(typer.Option, rich_help_panel="Agent")


class Mode(StrEnum):
    """How blocks run."""

    PROCESS = "process"
    SESSION = "session"


def mode_option(default: str) -> typer.models.OptionInfo:
    """Return the option `--mode`."""
    option: typer.models.OptionInfo = sandbox_option(
        metavar="MODE",
        help="process: a new process for each block. session: one interpreter, so that variables persist.",
        show_default=default,
    )
    return option


@dataclass(frozen=True)
class AgentChoice:
    """Which agent works on a task.

    Args:
        retries: How often the agent may repair failed code; None for the default. Not for a team.
        team: Whether to use a coder and an executor instead of one agent.
        act: Whether the agent works in steps in one session, instead of writing and repairing one program.
        steps: Maximum number of steps; None for the default.
        describe_environment: Whether the model is told what is in the sandbox. Not for a team.
    """

    retries: int | None = None
    team: bool = False
    act: bool = False
    steps: int | None = None
    describe_environment: bool = True

    def check(self, sandbox: SandboxChoice) -> None:
        """Check that the options fit together."""
        if self.team and self.retries is not None:
            raise CommandError("--retries is not for --team: there the coder continues until it says that it is done.")
        if self.act and self.team:
            raise CommandError("--act and --team can't be combined: choose one.")
        if self.act and self.retries is not None:
            raise CommandError("--retries is not for --act: there --steps limits the run.")
        if self.act and sandbox.kind == "none":
            raise CommandError("--act needs --mode session, which --sandbox none does not have.")
        if self.act and sandbox.mode == "process":
            raise CommandError("--act needs --mode session: leave --mode process out.")
        if self.steps is not None and not self.act:
            raise CommandError("--steps is only for --act.")


def _options(
    *,
    retries: Annotated[
        int | None,
        agent_option(min=0, metavar="N", help="How often the agent may repair failed code.", show_default="3"),
    ] = None,
    team: Annotated[
        bool, agent_option("--team", help="Two agents: one writes code, the other runs it, until the task is done.")
    ] = False,
    act: Annotated[
        bool,
        agent_option(
            "--act", help="One agent that works in steps: each step's code sees the variables of the earlier ones."
        ),
    ] = False,
    steps: Annotated[
        int | None, agent_option(min=1, metavar="N", help="Maximum number of steps with --act.", show_default="20")
    ] = None,
    describe_environment: Annotated[
        bool,
        agent_option(
            "--describe-environment/--no-describe-environment",
            help="Whether the model is told what is in the sandbox: versions, network, limits, files.",
        ),
    ] = True,
) -> AgentChoice:
    return AgentChoice(retries, team, act, steps, describe_environment)


def with_agent_options() -> Callable[[Command], Command]:
    """Give a command the options of an agent; they reach it as its argument `agent_choice`, an `AgentChoice`."""
    return with_options("agent_choice", _options)
