"""`codeact resume`: continues a run that was interrupted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from autogen_codeact.agents.reliable_client import ReliableClient
from autogen_codeact.cli.exit import CommandError, run_until_interrupted, say
from autogen_codeact.cli.jobs import ChatJob, ResumeJob
from autogen_codeact.cli.json_output import LastJsonLine
from autogen_codeact.cli.kept_runs import rebuilds, say_rebuilding
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.models import key_for, without_key
from autogen_codeact.cli.pages import CodeApproval
from autogen_codeact.cli.progress import STARTING, Progress
from autogen_codeact.cli.run import silence_libraries
from autogen_codeact.cli.run_printer import RunPrinter
from autogen_codeact.runs import RunError, load_run, resumed
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.runs.rebuilt_agents import asks_first
from autogen_codeact.runs.store import find_run


def resume_run(job: ResumeJob, end: LastJsonLine, progress: Progress) -> int:
    """Continue a run, print its new messages, and return the exit status as `codeact run` does."""
    path = end.run = find_run(job.run)
    choice = ModelChoice(api_key_env=job.api_key_env, timeout_s=job.timeout_s)
    choice.check()
    if not end.enabled and load_run(path).started.conversation:
        from autogen_codeact.cli.chat import run_chat  # noqa: PLC0415 - other runs need no chat

        return run_chat(ChatJob(choice, how=job.how, approve=job.approve, resume=str(path.absolute())))
    silence_libraries()
    return run_until_interrupted(_resume(job, path, end, progress), end.cancelled)


async def _resume(job: ResumeJob, path: Path, end: LastJsonLine, progress: Progress) -> int:
    key = os.environ.get(job.api_key_env) if job.api_key_env is not None else None
    if job.api_key_env is not None and not key:
        raise CommandError(
            f"There is no key in {job.api_key_env}: set it, or name another variable with --api-key-env."
        )
    plan = await asyncio.to_thread(make_plan, path)
    ask = asks_first(plan, wanted=job.approve)
    team = plan.started.kind == "team"
    printer = RunPrinter(progress, end, path, team=team)
    progress.set(STARTING)
    items = resumed(
        plan,
        api_key=key or key_for,
        wrap_model=lambda client: ReliableClient(client, job.timeout_s, tell=say),
        approval_func=CodeApproval(None, lambda: progress.set(None)) if ask else None,
        trust=job.how.trust,
        rebuild=rebuilds(plan, path, wanted=job.how.rebuild, trust=job.how.trust),
        on_rebuild=say_rebuilding,
    )
    try:
        result = await printer.follow(items, ModelChoice())
    except RunError as error:
        raise without_key(error, (agent.model for agent in plan.started.agents)) from error
    if result is not None:
        end.finish(result)
    return printer.print_problems()
