"""The options of `codeact chat`; nothing here is slow to import."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for AutoGen

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autogen_codeact.cli.exit import clean_exit
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.model_options import with_model_options
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.sandbox_options import with_sandbox_options

agent_option = partial(typer.Option, rich_help_panel="Agent")


@with_sandbox_options(isolated=True)
@with_model_options(required=False)
def chat(
    *,
    model_choice: ModelChoice,
    agent: Annotated[
        Path | None,
        agent_option(metavar="FILE.json", help="AutoGen component of an agent or a team, instead of a CodeActAgent."),
    ] = None,
    team: Annotated[
        bool, agent_option("--team", help="Two agents: one writes code, the other runs it, until there is an answer.")
    ] = False,
    steps: Annotated[
        int | None, agent_option(min=1, metavar="N", help="Maximum number of steps in a turn.", show_default="20")
    ] = None,
    stream: Annotated[
        bool, agent_option("--stream/--no-stream", help="Show the model's answer while it is generated.")
    ] = True,
    describe_environment: Annotated[
        bool,
        agent_option(
            "--describe-environment/--no-describe-environment",
            help="Tell the model what is in the sandbox: versions, network, limits, files.",
        ),
    ] = True,
    approve: Annotated[
        bool, agent_option("--approve", help="Ask before code runs, and show how it has changed files.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Continue an earlier chat: its folder, its name, or last."),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild/--no-rebuild", help="With --resume: rebuild the session, or begin with an empty one."),
    ] = True,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="With --resume: load the configuration in the log even if you did not make it here."
        ),
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder for the log. Default: one below your state folder.")
    ] = None,
    no_save: Annotated[bool, typer.Option("--no-save", help="Keep no log and no history.")] = False,
    view: Annotated[
        bool, typer.Option("--view", help="Show the chat live in a browser, with buttons to approve code and stop.")
    ] = False,
    choice: SandboxChoice,
) -> None:
    """Talk with an agent that writes code and runs it in one live session.

    Enter sends a message, Alt-Enter begins a new line, /help lists the commands. Ctrl-C stops the code that runs, a second one
    ends the turn, a third one leaves. The exit status is 0, or 130 after the third Ctrl-C.
    """
    with clean_exit():
        from autogen_codeact.cli.chat import run_chat
        from autogen_codeact.cli.chat_agent import ChatJob, is_chat
        from autogen_codeact.runs.store import find_run

        job = ChatJob(
            choice=model_choice,
            sandbox=replace(choice, mode="session"),
            component=agent,
            team=team,
            steps=steps,
            stream=stream,
            describe_environment=describe_environment,
            approve=approve,
            resume=find_run(resume, is_chat=is_chat) if resume is not None else None,
            rebuild=rebuild,
            trust=trust,
            untrusted=model_choice.untrusted,
            save=save,
            no_save=no_save,
            view=view,
        )
        raise typer.Exit(run_chat(job))
