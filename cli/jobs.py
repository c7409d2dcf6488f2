"""The options of the commands that let agents work: of `run`, `resume`, `chat` and `batch`; nothing here is slow to import."""

# ruff: noqa: RUF009 - options are defaults

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autogen_codeact.cli.command import option
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.model_choice import DEFAULT_TIMEOUT_S, NO_MODEL, ModelChoice, ModelTimeoutOption
from autogen_codeact.cli.sandbox_choice import SandboxChoice

agent_option = partial(option, rich_help_panel="Agent")
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
ViewOption = Annotated[
    bool, typer.Option("--view", help="Show it live in a browser, with buttons to stop and approve.")
]
NoSaveOption = Annotated[
    bool, typer.Option("--no-save", help="Keep no log: `codeact show` and `codeact resume` can't find it.")
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's folder; or its name in `codeact runs`; or last, for the latest.")
]
_save_option = partial(
    option,
    metavar="RUN",
    help="Keep the run in this new folder, such as runs/42, instead of among those that `codeact runs` lists.",
)


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


@dataclass(frozen=True)
class CostChoice:
    """The options of what the model may cost."""

    max_cost: float | None = agent_option(
        None, metavar="USD", help="End when it has cost this much; in a chat, a turn."
    )
    price: str | None = agent_option(
        None, metavar="P:C", help="Dollars for a million tokens, read and written: 2.5:10."
    )


@dataclass(frozen=True)
class RunJob:
    """The options of `codeact run`."""

    task: Annotated[str, typer.Argument(metavar="TASK", help="The task, as text.")]
    model: ModelChoice
    agent: AgentChoice
    sandbox: SandboxChoice
    cost: CostChoice = field(default_factory=CostChoice)
    stream: bool = option(False, "--stream", help="Show the model's answer while it is generated.")
    save: Path | None = _save_option(None)
    no_save: NoSaveOption = False
    view: ViewOption = False
    approve: bool = agent_option(False, "--approve", help="Ask before code runs, here and on the page of --view.")
    approve_later: bool = agent_option(
        False, "--approve-later", help="End before code runs; `codeact resume --approve` goes on, also in days."
    )
    as_json: JsonOption = False

    def check(self) -> None:
        """Raise a `CommandError` if the options do not fit together."""
        if not self.task.strip():
            raise CommandError("The task is empty: describe what the agent should do.")
        _check_log(view=self.view, save=self.save, no_save=self.no_save)
        if self.approve_later and (self.approve or self.no_save):
            raise CommandError("--approve-later keeps the question in the run: leave --approve and --no-save out.")
        if self.cost.max_cost is not None and not (self.agent.act or self.agent.team):
            raise CommandError("--max-cost is only for --act and --team.")
        self.agent.check(self.sandbox)


@dataclass(frozen=True)
class Resuming:
    """How a run or a chat is continued."""

    rebuild: bool = option(True, "--rebuild/--no-rebuild", help="Rebuild the session, or begin with an empty one.")
    trust: bool = option(
        False, "--trust", help="Load the configuration of a run that is not your own. It can run code on this machine."
    )


@dataclass(frozen=True)
class ResumeJob:
    """The options of `codeact resume`."""

    run: RunArgument
    how: Resuming
    api_key_env: str | None = option(None, metavar="VAR", help="Environment variable with the model's key.")
    timeout_s: ModelTimeoutOption = DEFAULT_TIMEOUT_S
    approve: bool = option(
        False,
        "--approve",
        help="Approve what the run waits for. Otherwise: ask before code runs; always if the run is not your own, or had it.",
    )
    deny: str | None = option(None, metavar="REASON", help="Deny what the run waits for.")
    question: str | None = option(None, metavar="qN", help="Answer this question only.", show_default="all")
    as_json: JsonOption = False


@dataclass(frozen=True)
class ChatJob:
    """The options of `codeact chat`."""

    model: ModelChoice
    sandbox: SandboxChoice = field(default_factory=SandboxChoice)
    how: Resuming = field(default_factory=Resuming)
    cost: CostChoice = field(default_factory=CostChoice)
    component: Path | None = agent_option(
        None, "--agent", metavar="FILE.json", help="AutoGen component of an agent or a team, instead of a CodeActAgent."
    )
    team: bool = agent_option(False, "--team", help="Two agents: one writes code, the other runs it.")
    steps: int | None = agent_option(None, min=1, metavar="N", help="Most steps in a turn.", show_default="20")
    stream: bool = agent_option(True, "--stream/--no-stream", help="Show the model's answer while it is generated.")
    approve: bool = agent_option(False, "--approve", help="Ask before code runs.")
    resume: str | None = option(None, metavar="RUN", help="Continue an earlier chat: its folder, its name, or last.")
    save: Path | None = _save_option(None)
    no_save: NoSaveOption = False
    view: ViewOption = False

    def check(self) -> None:
        """Raise a `CommandError` if the options do not fit together."""
        _check_log(view=self.view, save=self.save, no_save=self.no_save)
        named = bool(self.model.spec)
        if not named and self.model.base_url is not None:
            raise CommandError("--base-url goes with a model's name: add --model NAME.")
        if self.resume is None and self.component is None and not named:
            raise CommandError(NO_MODEL)
        own_agents = self.component is not None or self.team or self.steps is not None
        if self.component is not None and (named or self.team or self.steps is not None):
            raise CommandError("--agent FILE has its own model and steps: leave --model, --team and --steps out.")
        if self.resume is not None and (own_agents or self.save is not None or self.no_save):
            raise CommandError("--resume goes on as before: leave --agent, --team, --steps, --save and --no-save out.")
        if (self.resume or self.component) and self.sandbox != SandboxChoice():
            option = "--resume" if self.resume else "--agent"
            raise CommandError(
                f"{option} has its own sandbox: leave --sandbox, --work-dir and all other options of the sandbox out."
            )
        if (self.resume or self.component) and self.cost.max_cost is not None:
            raise CommandError("--max-cost is for a new chat with --model: others keep the limits that they have.")
        if self.team and self.steps is not None:
            raise CommandError("--steps is for one agent, not for --team.")
        if self.sandbox.mode == "process":
            raise CommandError("A chat needs one live interpreter: leave --mode process out.")


def _check_log(*, view: bool, save: Path | None, no_save: bool) -> None:
    if view and no_save:
        raise CommandError("--view and --no-save can't be combined: the page shows the log.")
    if save is not None and no_save:
        raise CommandError("--save and --no-save can't be combined: choose one.")


@dataclass(frozen=True)
class BatchJob:
    """The options of `codeact batch`; those of `BatchSettings` that are not here are given with `--option`."""

    tasks: Annotated[Path, typer.Argument(metavar="TASKS", help="FILE.jsonl or FILE.csv with a task in each line.")]
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; it can be continued.")]
    model: ModelChoice
    agent: AgentChoice
    sandbox: SandboxChoice
    cost: CostChoice = field(default_factory=CostChoice)
    repeat: int = option(1, min=1, metavar="K", help="How many times each task runs.")
    concurrency: int = option(4, min=1, metavar="N", help="Tasks that run at the same time.")
    max_tokens: int | None = option(None, min=1, metavar="N", help="End when the batch has used this many tokens.")
    accept_changes: bool = option(False, "--accept-changes", help="Continue if tasks or options have changed.")
    as_json: JsonOption = False
