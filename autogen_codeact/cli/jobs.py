"""The options of the commands that let agents work: of `run`, `resume`, `chat` and `batch`; nothing here is slow to import."""

# ruff: noqa: RUF009 - options are defaults

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autogen_codeact.cli.command import option
from autogen_codeact.cli.model_servers import REPLAY, find_preset
from autogen_codeact.cli.output import CommandError
from autogen_codeact.cli.sandbox_choice import SandboxChoice

DEFAULT_TIMEOUT_S = 120.0
NO_MODEL = "Which model? Name one with --model, such as openai/gpt-4o, ollama/NAME or replay:FILE, or in CODEACT_MODEL."
_option = partial(option, rich_help_panel="Model")
_TIMEOUT_HELP = "Longest wait for an answer of the server, or for a piece of one that is streamed."
ModelTimeoutOption = Annotated[
    float, typer.Option("--model-timeout", metavar="SECONDS", rich_help_panel="Model", help=_TIMEOUT_HELP)
]


@dataclass(frozen=True)
class ModelChoice:
    spec: str = _option(
        "",
        "--model",
        metavar="MODEL",
        help="openai/NAME, anthropic/NAME, gemini/NAME, ollama/NAME or lmstudio/NAME; NAME, at OpenAI or --base-url; "
        "replay:FILE for recorded answers; or FILE.json of an AutoGen model client.",
        show_default=False,
    )
    base_url: str | None = _option(None, metavar="URL", help="A server with OpenAI's format: http://localhost:8000/v1.")
    api_key_env: str | None = _option(
        None, metavar="VAR", help="Variable with the key.", show_default="OPENAI_API_KEY, or that of the prefix"
    )
    timeout_s: ModelTimeoutOption = DEFAULT_TIMEOUT_S

    @property
    def is_file(self) -> bool:
        """Whether it is a recording or a component, and not a name."""
        return self.spec.startswith(REPLAY) or self.spec.endswith(".json")

    @property
    def key_variable(self) -> str:
        if self.api_key_env is not None:
            return self.api_key_env
        if self.base_url is not None or self.is_file:
            return "OPENAI_API_KEY"
        return find_preset(self.spec).key_variable

    def check(self) -> None:
        if self.is_file and (self.base_url is not None or self.api_key_env is not None):
            raise CommandError(
                "--base-url and --api-key-env go with a model's name, not with a recording or a component"
            )
        if self.base_url is not None and not re.match(r"https?://[^/]", self.base_url):
            raise CommandError(f"--base-url {self.base_url} is not an address: it begins with http:// or https://")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise CommandError("--model-timeout is a number of seconds above 0")


agent_option = partial(option, rich_help_panel="Agent")
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer, or what the code prints, only.")]
ViewOption = Annotated[
    bool, typer.Option("--view", help="Show it live in a browser, with buttons to stop and approve.")
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="NAME=VALUE",
        rich_help_panel="Agent",
        help="Most steps (with --act), retries of failed code (without it), tokens, seconds or cost in dollars, as steps=20; "
        "or price=2.5:10, of a million tokens read and written; can be repeated.",
    ),
]
NO_LOG = Path("none")
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's folder; or its name in `codeact runs`; or last, for the latest.")
]
_save_option = partial(
    option,
    metavar="RUN",
    help="Keep the run in this new folder, such as runs/42, instead of among those that `codeact runs` lists; none: keep no log.",
)


@dataclass(frozen=True)
class AgentChoice:
    team: bool = agent_option(False, "--team", help="Two agents: one writes code, the other runs it.")
    act: bool = agent_option(False, "--act", help="One agent that works in steps; later ones see its variables.")
    budget: BudgetOption = None

    def check(self, sandbox: SandboxChoice) -> None:
        """Raise a `CommandError` if the options do not fit together."""
        if self.act and self.team:
            raise CommandError("--act and --team can't be combined: choose one.")
        if self.act and sandbox.is_process:
            raise CommandError("--act needs a session: leave --option mode=process out.")


@dataclass(frozen=True)
class RunJob:
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task, as text; or - for standard input.")]
    model: ModelChoice
    agent: AgentChoice
    sandbox: SandboxChoice
    save: Path | None = _save_option(None)
    view: ViewOption = False
    approve: bool = agent_option(False, "--approve", help="Ask before code runs, here and on the page of --view.")
    approve_later: bool = agent_option(
        False, "--approve-later", help="End before code runs; `codeact resume --approve` goes on, also in days."
    )
    quiet: QuietOption = False
    as_json: JsonOption = False

    def check(self) -> None:
        if not self.task.strip():
            raise CommandError("The task is empty: describe what the agent should do.")
        _check_log(view=self.view, save=self.save)
        if self.approve_later and (self.approve or self.save == NO_LOG):
            raise CommandError("--approve-later keeps the question in the run: leave --approve and --save none out.")
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
    model: ModelChoice
    sandbox: SandboxChoice = field(default_factory=SandboxChoice)
    how: Resuming = field(default_factory=Resuming)
    component: Path | None = agent_option(
        None, "--agent", metavar="FILE.json", help="AutoGen component of an agent or a team, instead of a CodeActAgent."
    )
    team: bool = agent_option(False, "--team", help="Two agents: one writes code, the other runs it.")
    budget: BudgetOption = None
    approve: bool = agent_option(False, "--approve", help="Ask before code runs.")
    resume: str | None = option(None, metavar="RUN", help="Continue an earlier chat: its folder, its name, or last.")
    save: Path | None = _save_option(None)
    view: ViewOption = False

    def check(self) -> None:
        _check_log(view=self.view, save=self.save)
        named = bool(self.model.spec)
        own_agents = self.component is not None or self.team or self.budget is not None
        if not named and self.model.base_url is not None:
            raise CommandError("--base-url goes with a model's name: add --model NAME.")
        if self.resume is None and self.component is None and not named:
            raise CommandError(NO_MODEL)
        if self.component is not None and (named or self.team or self.budget is not None):
            raise CommandError("--agent FILE has its own model and limits: leave --model, --team and --budget out.")
        if self.resume is not None and (own_agents or self.save is not None):
            raise CommandError("--resume goes on as before: leave --agent, --team, --budget and --save out.")
        if (self.resume or self.component) and self.sandbox != SandboxChoice():
            option = "--resume" if self.resume else "--agent"
            raise CommandError(
                f"{option} has its own sandbox: leave --sandbox, --work-dir and all other options of the sandbox out."
            )
        if self.sandbox.is_process:
            raise CommandError("A chat needs one live interpreter: leave --option mode=process out.")


def _check_log(*, view: bool, save: Path | None) -> None:
    if view and save == NO_LOG:
        raise CommandError("--view and --save none can't be combined: the page shows the log.")


@dataclass(frozen=True)
class BatchJob:
    """The options of `codeact batch`; those of `BatchSettings` that are not here are given with `--option`."""

    tasks: Annotated[Path, typer.Argument(metavar="TASKS", help="FILE.jsonl or FILE.csv with a task in each line.")]
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; it can be continued.")]
    model: ModelChoice
    agent: AgentChoice
    sandbox: SandboxChoice
    repeat: int = option(1, min=1, metavar="K", help="How many times each task runs.")
    concurrency: int = option(4, min=1, metavar="N", help="Tasks that run at the same time.")
    accept_changes: bool = option(False, "--accept-changes", help="Continue if tasks or options have changed.")
    as_json: JsonOption = False
