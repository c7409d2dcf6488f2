"""The options of the agent that works on a task; nothing here is slow to import."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from autogen_codeact.cli.command import option
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice

agent_option = partial(option, rich_help_panel="Agent")


@dataclass(frozen=True)
class AgentChoice:
    """The options of an agent."""

    retries: int | None = agent_option(None, min=0, metavar="N", help="Most repairs of failed code.", show_default="3")
    team: bool = agent_option(False, "--team", help="Two agents: one writes code, the other runs it.")
    act: bool = agent_option(False, "--act", help="One agent that works in steps; later ones see its variables.")
    steps: int | None = agent_option(None, min=1, metavar="N", help="Most steps with --act.", show_default="20")

    def check(self, sandbox: SandboxChoice) -> None:
        """Raise a `CommandError` if the options do not fit together."""
        if self.team and self.retries is not None:
            raise CommandError("--retries is not for --team: there the coder continues until it says that it is done.")
        if self.act and self.team:
            raise CommandError("--act and --team can't be combined: choose one.")
        if self.act and self.retries is not None:
            raise CommandError("--retries is not for --act: there --steps limits the run.")
        if self.act and sandbox.mode == "process":
            raise CommandError("--act needs --mode session: leave --mode process out.")
        if self.steps is not None and not self.act:
            raise CommandError("--steps is only for --act.")
