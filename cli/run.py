"""`codeact run`: one task, solved by an agent or a team."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent, TextMessage
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CUT_OFF_NOTE
from autogen_codeact.cli.ending import CommandError, run_until_interrupted, say
from autogen_codeact.cli.models import ModelChoice, describe_error, open_model
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.sandbox import SandboxChoice, started
from autogen_codeact.cli.screen import Screen
from autogen_codeact.cli.show import Message, Play
from autogen_codeact.executors import SandboxError, ToolExecutor
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.teams import FinalWordTermination, coder_executor_team

DEFAULT_RETRIES = 3
DEFAULT_STEPS = 20
_NOISE = ("Pydantic serializer warnings", "Resolved model mismatch", "Missing required field")
"""What AutoGen's OpenAI client warns about although nothing is wrong."""


@dataclass(frozen=True)
class Job:
    """What is to be done, and how.

    Args:
        task: In words.
        model: Who thinks.
        sandbox: Where code runs.
        retries: How often failed code may be repaired; None for the default. Not for a team.
        team: Whether a coder and an executor work together, instead of one agent.
        act: Whether the agent acts in code, step by step in one session, instead of writing and repairing it.
        steps: How many steps that may take; None for the default.
        stream: Whether the model's words are shown as they come.
    """

    task: str
    model: ModelChoice
    sandbox: SandboxChoice
    retries: int | None
    team: bool
    stream: bool
    act: bool = False
    steps: int | None = None


def run_task(job: Job, *, as_json: bool) -> int:
    """Do a job and show it.

    Args:
        job: The job.
        as_json: Print one AutoGen message a line instead of text, at last a `TaskResult`.

    Returns:
        0 with a final answer; 1 without one, or when the last code failed; 130 after Ctrl-C.

    Raises:
        CommandError: An option can't be right, or the model failed.
        SandboxError: The sandbox broke.
    """
    if not job.task.strip():
        raise CommandError("The task is empty: say in words what is to be done.")
    _check(job)
    quieten()
    return run_until_interrupted(_run(job, open_model(job.model), as_json=as_json))


def _check(job: Job) -> None:
    if job.team and job.retries is not None:
        raise CommandError("--retries is for the agent alone; in a team the coder tries until it says that it is done.")
    if job.act and job.team:
        raise CommandError("--act and --team are two ways to work: choose one.")
    if job.act and job.retries is not None:
        raise CommandError("--retries is for code that is repaired; with --act, --steps says how long it may go on.")
    if job.act and job.sandbox.kind == "none":
        raise CommandError("--act needs a session that lives on, which there is not with --sandbox none.")
    if job.act and job.sandbox.mode != "session":
        raise CommandError("--act needs a session that lives on: leave --mode process out.")
    if job.steps is not None and not job.act:
        raise CommandError("--steps goes with --act.")


def quieten() -> None:
    """Keep to ourselves what libraries log and warn about: an error that matters is raised, and shown as one line."""
    for name in ("autogen_core", "autogen_agentchat", "autogen_ext", "openai"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)


async def _run(job: Job, client: ChatCompletionClient, *, as_json: bool) -> int:
    watch = Watch(job.team)
    play = None if as_json else Play(Screen(), team=job.team)
    try:
        async with started(job.sandbox) as executor, aclosing(_events(job, client, executor)) as events:
            async for event in events:
                await watch.see(event)
                if play is None:
                    print_json(_as_object(event))
                elif not isinstance(event, TaskResult):
                    play.show(event)
            files = await _left_files(executor) if job.sandbox.work_dir is None else []
    except (CommandError, SandboxError):
        raise
    except Exception as error:  # whatever a model client raises
        raise CommandError(f"The run failed. {describe_error(error, job.model)}") from error
    finally:
        await client.close()
    if watch.silent:
        say("the model answered with nothing")
    if files:
        say(f"gone with the sandbox: {', '.join(map(printable, sorted(files)))}. --work-dir FOLDER keeps files.")
    return watch.status


async def _left_files(executor: CodeExecutor) -> list[str]:
    return await executor.list_files() if isinstance(executor, ToolExecutor) else []


def _events(
    job: Job, client: ChatCompletionClient, executor: CodeExecutor
) -> AsyncGenerator[Message | TaskResult, None]:
    if job.team:
        team = coder_executor_team(client, executor, model_client_stream=job.stream)
        return team.run_stream(task=job.task)
    if job.act:
        actor = CodeActAgent(
            "coder",
            executor,
            model_client=client,
            model_client_stream=job.stream,
            max_steps=DEFAULT_STEPS if job.steps is None else job.steps,
        )
        return actor.run_stream(task=job.task)
    agent = CodeExecutorAgent(
        "coder",
        executor,
        model_client=client,
        model_client_stream=job.stream,
        max_retries_on_error=DEFAULT_RETRIES if job.retries is None else job.retries,
    )
    return agent.run_stream(task=job.task)


def _as_object(event: Message | TaskResult) -> dict[str, object]:
    if isinstance(event, TaskResult):
        return {"type": "TaskResult", "stop_reason": event.stop_reason}
    return dict(event.dump())


class Watch:
    """Follows a run and knows in the end how it went, and whether the last word was an empty one (`silent`).

    Args:
        team: Whether it is a team's.
    """

    def __init__(self, team: bool) -> None:
        self._team = team
        self._failed = False
        self._answered = False
        self.silent = False

    @property
    def status(self) -> int:
        """The exit status."""
        return 0 if self._answered and not self._failed else 1

    async def see(self, event: Message | TaskResult) -> None:
        """Take note of an event."""
        if isinstance(event, TaskResult):
            last = event.messages[-1]
            self._answered = await self._is_answer(last)
            self.silent = isinstance(last, TextMessage) and last.source != "user" and not last.content.strip()
        elif isinstance(event, CodeExecutionEvent):
            self._failed = event.result.exit_code != 0
        elif isinstance(event, TextMessage) and "exit_code" in event.metadata:
            self._failed = event.metadata["exit_code"] != "0"

    async def _is_answer(self, last: Message) -> bool:
        if not isinstance(last, TextMessage) or not last.content.strip():
            return False
        if self._team:
            return await FinalWordTermination("TERMINATE", sources=["coder"])([last]) is not None
        is_whole = "stopped" not in last.metadata and not last.content.endswith(CUT_OFF_NOTE)
        return last.source != "user" and is_whole
