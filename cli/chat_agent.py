"""The agent or team of a chat: made from options, from a component's file, or from the log of an earlier chat."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.model_calls import innermost
from autogen_codeact.agents.reliable_client import ReliableClient
from autogen_codeact.cli.agents import DEFAULT_STEPS, LANGUAGES
from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.models import describe_error, key_for, open_model, without_key
from autogen_codeact.cli.recording import RecordedModel
from autogen_codeact.cli.sandbox import started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import SandboxCodeExecutor
from autogen_codeact.runs.agents import agent_keys, describe_agents
from autogen_codeact.runs.copies import export_files
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.events import ModelCallFinished
from autogen_codeact.runs.plan import Plan
from autogen_codeact.runs.reader import RawEvent, load_run
from autogen_codeact.runs.rebuilt_agents import load_agents
from autogen_codeact.teams import coder_executor_team
from autogen_codeact.teams.loading import load_component
from autogen_codeact.teams.parts import executors_of

CLIENT = "_model_client"
"""Attribute of AutoGen's agents with their model, which has no public name."""


_UNUSED_KEY = "none"
"""For a model that another one takes the place of."""
_RECORDINGS = ("RecordedModel", "ReplayChatCompletionClient")


@dataclass(frozen=True)
class ChatJob:
    """The options of a chat.

    Args:
        choice: The model; without a name that of the component or of the earlier chat.
        sandbox: The sandbox, if there is neither a component nor an earlier chat.
        component: File of a component: an agent or a team. Default: a `CodeActAgent`.
        team: Whether a coder and an executor answer instead of one agent.
        steps: Maximum number of steps in a turn; None for the default.
        stream: Whether the model's answer is shown while it is generated.
        describe_environment: Whether the model is told what is in the sandbox.
        approve: Whether the user is asked before code runs.
        resume: Folder of an earlier chat to go on with.
        rebuild: Whether its session is rebuilt.
        trust: Whether the configuration in its log may have what an untrusted one may not.
        untrusted: Whether the component may have only what an untrusted one may.
        save: Folder of the run; None for one below the user's state folder.
        no_save: Whether no log is kept.
        view: Whether the chat is shown live in a browser.
    """

    choice: ModelChoice
    sandbox: SandboxChoice = field(default_factory=SandboxChoice)
    component: Path | None = None
    team: bool = False
    steps: int | None = None
    stream: bool = True
    describe_environment: bool = True
    approve: bool = False
    resume: Path | None = None
    rebuild: bool = True
    trust: bool = False
    untrusted: bool = False
    save: Path | None = None
    no_save: bool = False
    view: bool = False

    @property
    def model(self) -> ModelChoice | None:
        """The model that is named, or None."""
        return self.choice if self.choice.spec else None

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            CommandError: They don't.
        """
        if self.view and self.no_save:
            raise CommandError("--view and --no-save can't be combined: the page shows the log of the chat.")
        if self.model is None and self.choice.base_url is not None:
            raise CommandError("--base-url goes with a model's name: add --model NAME.")
        if self.resume is None and self.component is None and self.model is None:
            raise CommandError("Which model? Name one with --model, such as openai/gpt-4o or replay:FILE.")
        if self.component is not None and (self.model is not None or self.team or self.steps is not None):
            raise CommandError(
                "--agent FILE has its own model, agents and steps: leave --model, --team and --steps out."
            )
        if self.resume is not None and (self.component is not None or self.team or self.steps is not None):
            raise CommandError(
                "--resume goes on with the agents of the earlier chat: leave --agent, --team and --steps out."
            )
        if self.resume is not None and (self.save is not None or self.no_save):
            raise CommandError("--resume goes on in the log of the earlier chat: leave --save and --no-save out.")
        if (self.resume or self.component) and self.sandbox != SandboxChoice(mode=self.sandbox.mode):
            option = "--resume" if self.resume else "--agent"
            raise CommandError(f"The sandbox of {option} is in its configuration: leave options of the sandbox out.")
        if self.team and self.steps is not None:
            raise CommandError("--steps is for one agent, not for --team.")
        if self.sandbox.kind == "none":
            raise CommandError("A chat needs a session, which --sandbox none does not have.")
        if self.save is not None and self.no_save:
            raise CommandError("--save and --no-save can't be combined: choose one.")


@asynccontextmanager
async def opened(job: ChatJob, plan: Plan | None) -> AsyncIterator[ChatAgent | BaseTeam]:
    """Make the agent or team with a running sandbox, and release everything afterwards.

    Args:
        job: The options.
        plan: The earlier chat to go on with, or None.

    Raises:
        CommandError: An option, a file or the key is missing or wrong.
        SandboxError: The sandbox did not start.
        RunError: The earlier chat can't be continued.
    """
    async with AsyncExitStack() as stack:
        client = None
        if job.model is not None:
            client = open_model(job.model)
            stack.push_async_callback(client.close)
        if plan is None and job.component is None:
            assert client is not None
            executor = await stack.enter_async_context(started(job.sandbox))
            yield _make(job, client, executor)
            return
        if plan is None:
            target = _load(job)
            stack.push_async_callback(_close, target)
        else:
            try:
                target = load_agents(plan, (), _keys(job), trust=job.trust, set_later=("approval_func", "approve_tool"))
            except RunError as error:
                raise without_key(error, (agent.model for agent in plan.started.agents)) from error
            stack.push_async_callback(_close, target)
            for _, agent in agent_keys(target):
                exchange_model(agent, _resumed_model(job, client, getattr(agent, CLIENT, None), plan))
        for each in executors_of(target):
            if isinstance(each, SandboxCodeExecutor):
                await each.start()
                if plan is not None:
                    _put_files_back(plan, each)
        yield target


def _make(job: ChatJob, client: ChatCompletionClient, executor: Any) -> ChatAgent | BaseTeam:
    if job.team:
        return coder_executor_team(
            client, executor, model_client_stream=job.stream, stream_output=True, supported_languages=list(LANGUAGES)
        )
    return CodeActAgent(
        "coder",
        executor,
        model_client=client,
        model_client_stream=job.stream,
        stream_output=True,
        max_steps=DEFAULT_STEPS if job.steps is None else job.steps,
        describe_environment=job.describe_environment,
    )


def with_component(job: ChatJob) -> ChatJob:
    """Return the options with `--model FILE.json` as the component, if it is that of an agent or a team."""
    if job.model is None or not job.model.spec.endswith(".json") or job.component is not None:
        return job
    with suppress(OSError, ValueError):
        data = json.loads(Path(job.model.spec).read_bytes())
        if isinstance(data, dict) and data.get("component_type") in ("agent", "team"):
            return replace(job, component=Path(job.model.spec), choice=replace(job.choice, spec=""))
    return job


def _load(job: ChatJob) -> ChatAgent | BaseTeam:
    file = job.component
    assert file is not None
    try:
        loaded = load_component(file, trusted=not job.untrusted, allow_keys=True)
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except Exception as error:  # whatever the constructor of a component raises
        raise CommandError(f"{file} can't be loaded: {describe_error(error, ModelChoice(str(file)))}") from error
    if not isinstance(loaded, ChatAgent | BaseTeam):
        raise CommandError(f"{file} is the component of a {type(loaded).__name__}, not of an agent or a team.")
    return loaded


def _keys(job: ChatJob) -> str | Callable[[Mapping[str, Any]], str | None]:
    """Return the key of the models of an earlier chat, or what finds it."""
    variable = job.choice.api_key_env
    if job.model is not None:
        return _UNUSED_KEY
    if variable is None:
        return key_for
    if not (key := os.environ.get(variable, "").strip()):
        raise CommandError(f"There is no key in {variable}: set it, or name another variable with --api-key-env.")
    return key


async def _close(target: Any) -> None:
    close = getattr(target, "close", None)
    try:
        if close is not None:
            await close()
    finally:
        for executor in executors_of(target):
            if isinstance(executor, SandboxCodeExecutor):
                await executor.stop()


def exchange_model(agent: ChatAgent, client: ChatCompletionClient | None) -> None:
    """Give an agent another model client, if it has one."""
    if client is not None and getattr(agent, CLIENT, None) is not None:
        setattr(agent, CLIENT, client)


def _resumed_model(
    job: ChatJob, client: ChatCompletionClient | None, loaded: Any, plan: Plan
) -> ChatCompletionClient | None:
    """Return the model client of an agent of an earlier chat.

    Args:
        job: The options.
        client: The model that the options name, or None.
        loaded: The model of the configuration in the log; None if the agent has none.
        plan: The earlier chat.
    """
    if client is None:
        recorded = type(loaded).__name__ == "ReplayChatCompletionClient"
        # AutoGen's loses line breaks when it streams.
        inner = RecordedModel([e for e in loaded.chat_completions if not isinstance(e, str)]) if recorded else loaded
        return ReliableClient(inner, job.choice.timeout_s, tell=say) if inner is not None else None
    inner = innermost(client)
    return RecordedModel(_unused_answers(inner, plan)) if isinstance(inner, RecordedModel) else client


def _unused_answers(client: RecordedModel, plan: Plan) -> list[Any]:
    """Return the answers of a recording that the chat has not used yet."""
    answers = [each for each in client.chat_completions if not isinstance(each, str)]
    count, known = 0, True
    for raw in plan.run.raw_events():
        event = plan.run.parse(raw) if isinstance(raw, RawEvent) and raw.name == "model_call_finished" else None
        if isinstance(event, ModelCallFinished) and event.result is not None:
            known = known and count < len(answers) and answers[count].content == event.result.get("content")
            count += 1
    return answers[count:] if known else answers


def _put_files_back(plan: Plan, executor: SandboxCodeExecutor) -> None:
    """Write the files that the code had made into a workspace that was temporary."""
    with suppress(RunError, OSError):
        if executor.sandbox.options.work_dir is None and not any(executor.work_dir.iterdir()):
            export_files(plan.run, executor.work_dir)


def model_names(target: ChatAgent | BaseTeam) -> list[str]:
    """Return the names of the models, each once."""
    names = dict.fromkeys(info.model for info in describe_agents(target) if info.model is not None)
    return ["recorded answers" if name in _RECORDINGS else name for name in names]


def is_chat(folder: Path) -> bool:
    """Return whether a run is a chat; one that can't be read is none.

    Args:
        folder: The run's folder.
    """
    try:
        return load_run(folder).started.conversation
    except RunError:
        return False
