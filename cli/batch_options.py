"""The options of `codeact batch`; nothing here is slow to import."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for AutoGen

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from autogen_codeact.cli.agent_options import AgentChoice, Mode, mode_option, with_agent_options
from autogen_codeact.cli.batch_job import BatchJob, LimitChoice
from autogen_codeact.cli.command import Application, JsonCommand
from autogen_codeact.cli.exit import clean_exit
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.model_options import with_model_options
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.sandbox_options import with_sandbox_options
from autogen_codeact.cli.shared_options import Command, with_options

limit_option = partial(typer.Option, rich_help_panel="Limits")


def _limits(
    *,
    concurrency: Annotated[int, limit_option(min=1, metavar="N", help="Tasks that run at the same time.")] = 4,
    attempts: Annotated[
        int,
        limit_option(min=1, metavar="N", help="Maximum number of attempts, if a task fails with a temporary error."),
    ] = 3,
    backoff: Annotated[
        float,
        limit_option(
            min=0, metavar="SECONDS", help="Pause before the second attempt; each further one is twice as long."
        ),
    ] = 1.0,
    repeat: Annotated[int, limit_option(min=1, metavar="K", help="How many times each task runs.")] = 1,
    max_sandboxes: Annotated[
        int | None,
        limit_option(
            min=1, metavar="N", help="Sandboxes that exist at the same time.", show_default="as --concurrency needs"
        ),
    ] = None,
    sandbox_uses: Annotated[
        int,
        limit_option(min=1, metavar="N", help="How many tasks use a sandbox, reset after each, before it is replaced."),
    ] = 1,
    model_calls_per_minute: Annotated[
        float | None, limit_option(metavar="N", help="Model calls that begin in a minute, of all tasks together.")
    ] = None,
    tasks_per_minute: Annotated[float | None, limit_option(metavar="N", help="Tasks that begin in a minute.")] = None,
    max_tokens: Annotated[
        int | None, limit_option(min=1, metavar="N", help="End the batch when it has used this many tokens.")
    ] = None,
    max_cost: Annotated[
        float | None, limit_option(metavar="AMOUNT", help="End the batch when it has cost this much. Needs --price.")
    ] = None,
    price: Annotated[
        str | None,
        limit_option(
            metavar="P:C", help="Prices of a million prompt tokens and of a million completion tokens, such as 2.5:10."
        ),
    ] = None,
    max_seconds: Annotated[float | None, limit_option(metavar="SECONDS", help="End the batch after this time.")] = None,
    task_timeout: Annotated[
        float | None, limit_option(metavar="SECONDS", help="End an attempt at a task after this time.")
    ] = None,
) -> LimitChoice:
    return LimitChoice(
        concurrency=concurrency,
        attempts=attempts,
        backoff=backoff,
        repeat=repeat,
        max_sandboxes=max_sandboxes,
        sandbox_uses=sandbox_uses,
        model_calls_per_minute=model_calls_per_minute,
        tasks_per_minute=tasks_per_minute,
        max_tokens=max_tokens,
        max_cost=max_cost,
        price=price,
        max_seconds=max_seconds,
        task_timeout=task_timeout,
    )


def with_limit_options() -> Callable[[Command], Command]:
    """Give a command the limits of a batch; they reach it as its argument `limit_choice`, a `LimitChoice`."""
    return with_options("limit_choice", _limits)


_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for other programs: a line for each task.")]


class BatchCommand(JsonCommand):
    """`codeact batch TASKS …`; with `report` as its first argument, another command."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options."""
        if args[:1] == ["report"]:
            reporting = Application()
            reporting.command(cls=JsonCommand)(report)
            command: Any = typer.main.get_command(reporting)
            return command.make_context(f"{info_name} report", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@with_sandbox_options(isolated=True)
@with_agent_options()
@with_limit_options()
@with_model_options()
def batch(
    tasks: Annotated[
        Path,
        typer.Argument(
            metavar="TASKS",
            help="FILE.jsonl or FILE.csv with a task in each line.",
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the results; that of an earlier command continues it.")
    ],
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only the first N tasks, to try the command.", show_default="all"),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="How answers are checked if a task does not say: exact, number, regex or json compares with `expected` of "
            "the task; FILE.py runs in a sandbox.",
        ),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Continue even if tasks or options have changed.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Continue even if the first tasks all fail with the same error.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Run the tasks on a Ray cluster: its address, or auto. Needs the extra ray."
        ),
    ] = None,
    as_json: _JsonOption = False,
    limit_choice: LimitChoice,
    model_choice: ModelChoice,
    agent_choice: AgentChoice,
    mode: Annotated[Mode | None, mode_option("session")] = None,
    choice: SandboxChoice,
) -> None:
    """Let an agent solve many tasks, several at the same time. The same command again continues where it ended.

    After Ctrl-C running tasks are finished; a second Ctrl-C stops at once. The exit status is 0 if each task has ended, 1 if
    some have failed, 2 if the batch was not possible, 3 if its budget has ended it, 130 after Ctrl-C. `codeact batch report DIR`
    summarizes a batch and compares it with another one; `codeact batch report --help` describes it.
    """
    from autogen_codeact.cli.json_output import LastJsonLine

    with clean_exit(), LastJsonLine(as_json, "batch") as end:
        from autogen_codeact.cli.batch import run_tasks

        job = BatchJob(
            tasks=tasks,
            out=out,
            limit=limit,
            check=check,
            accept_changes=accept_changes,
            keep_going=keep_going,
            ray=ray,
            limits=limit_choice,
            model=model_choice,
            agent=agent_choice,
            sandbox=replace(choice, mode=mode and mode.value),
        )
        raise typer.Exit(run_tasks(job, end))


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a batch.")],
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR2]", help="Folder of another one, which is compared with it task by task."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="FIELD",
            show_default="none",
            help="Also summarize by the values of a field of `metadata`, such as level.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
) -> None:
    """Summarize a batch: outcomes, checks, tokens, errors. With two folders, list the tasks that end differently.

    The exit status is 0, or 2 if a folder can't be read.
    """
    with clean_exit():
        from autogen_codeact.cli.batch_report import print_report

        raise typer.Exit(print_report(folder, other, by=by, as_json=as_json))
