"""`codeact resume`: continues a run that was interrupted."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from autogen_agentchat.base import TaskResult

from autogen_codeact.agents.reliable_client import ReliableClient
from autogen_codeact.cli.exit import CommandError, run_until_interrupted, say
from autogen_codeact.cli.json_output import LastJsonLine
from autogen_codeact.cli.live_page import CodeApproval
from autogen_codeact.cli.message_printer import MessagePrinter
from autogen_codeact.cli.model_choice import DEFAULT_TIMEOUT_S, ModelChoice
from autogen_codeact.cli.models import describe_error, key_for, without_key
from autogen_codeact.cli.progress import STARTING, Progress
from autogen_codeact.cli.run import RunOutcome, silence_libraries
from autogen_codeact.cli.run_storage import rebuilds
from autogen_codeact.runs import LogLocked, RunError, load_run, resumed
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.runs.rebuilt_agents import asks_first
from autogen_codeact.sandbox import SandboxError
from autogen_codeact.sandbox.types.formatting import format_count


@dataclass(frozen=True)
class ResumeJob:
    """The options of `codeact resume`.

    Args:
        path: The run's folder.
        rebuild: Whether the session is rebuilt.
        trust: Whether the configuration in the log may have what an untrusted one may not.
        approve: Whether the user is asked before code runs, also if the run is the user's own and did not ask.
        api_key_env: Environment variable with the key of the model; None for that of its server.
        model_timeout: How long the model's server may send nothing, in seconds.
    """

    path: Path
    rebuild: bool = True
    trust: bool = False
    approve: bool = False
    api_key_env: str | None = None
    model_timeout: float = DEFAULT_TIMEOUT_S


def resume_run(job: ResumeJob, end: LastJsonLine, progress: Progress) -> int:
    """Continue a run, and print its new messages.

    Args:
        job: The options.
        end: Says whether JSON is wanted: one object a line instead of text. It prints the last one.
        progress: Shows what is happening.

    Returns:
        What `codeact run` would have returned.

    Raises:
        RunError: The run can't be continued.
        CommandError: The model failed, or the run is still going on.
        SandboxError: The sandbox broke.
    """
    choice = ModelChoice("", api_key_env=job.api_key_env, timeout_s=job.model_timeout)
    choice.check()
    if not end.enabled and load_run(job.path).started.conversation:
        from autogen_codeact.cli.chat import run_chat  # noqa: PLC0415 - other runs need no chat
        from autogen_codeact.cli.chat_agent import ChatJob  # noqa: PLC0415 - as above

        return run_chat(
            ChatJob(
                choice,
                approve=job.approve,
                resume=job.path,
                rebuild=job.rebuild,
                trust=job.trust,
            )
        )
    silence_libraries()
    return run_until_interrupted(_resume(job, end, progress), end.cancelled)


async def _resume(job: ResumeJob, end: LastJsonLine, progress: Progress) -> int:
    key = os.environ.get(job.api_key_env) if job.api_key_env is not None else None
    if job.api_key_env is not None and not key:
        raise CommandError(
            f"There is no key in {job.api_key_env}: set it, or name another variable with --api-key-env."
        )
    plan = await asyncio.to_thread(make_plan, job.path)
    ask = asks_first(plan, wanted=job.approve)
    team = plan.started.kind == "team"
    outcome = RunOutcome(team)
    printer = MessagePrinter(progress, job.path if end.enabled else None, as_json=end.enabled, team=team)
    progress.set(STARTING)
    items = resumed(
        plan,
        api_key=key or key_for,
        wrap_model=lambda client: ReliableClient(client, job.model_timeout, tell=say),
        approval_func=CodeApproval(None, lambda: progress.set(None)) if ask else None,
        trust=job.trust,
        rebuild=rebuilds(plan, job.path, wanted=job.rebuild, trust=job.trust),
        on_rebuild=_announce,
    )
    try:
        async with aclosing(items) as events:
            async for event in events:
                await outcome.update(event)
                await printer.show(event)
                if isinstance(event, TaskResult):
                    end.finish(event)
    except LogLocked as error:
        raise CommandError(str(error)) from error
    except RunError as error:
        raise without_key(error, (agent.model for agent in plan.started.agents)) from error
    except (CommandError, SandboxError):
        raise
    except Exception as error:  # whatever a model client raises
        raise CommandError(f"The run failed. {describe_error(error, ModelChoice(''))}") from error
    finally:
        progress.set(None)
        printer.end()
    outcome.print_problems()
    return outcome.status


def _announce(blocks: int) -> None:
    say(f"rebuilding the session: {format_count(blocks, 'block')} (--no-rebuild begins with an empty session)")
