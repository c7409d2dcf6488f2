"""The agent or team of a chat: made from options, from a component's file, or from the log of an earlier chat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents.model_calls import DeadlineClient
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.jobs import AgentChoice, ChatJob
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.models import describe_error, key_for, named_key, open_model, without_key
from autogen_codeact.cli.recording import RecordedModel
from autogen_codeact.cli.sandbox import make_agent, read_limits, started
from autogen_codeact.cli.sandbox_choice import with_skills
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.agents import agent_keys, describe_agents, load_agents
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.notebook import export_files
from autogen_codeact.runs.plan import Plan
from autogen_codeact.runs.reader import load_run
from autogen_codeact.runs.text import model_name
from autogen_codeact.teams.loading import load_component
from autogen_codeact.teams.parts import executors_of

CLIENT = "_model_client"
"""Attribute of AutoGen's agents with their model, which has no public name."""
_UNUSED_KEY = "none"
"""For a model that another one takes the place of."""


@asynccontextmanager
async def opened(job: ChatJob, plan: Plan | None) -> AsyncIterator[ChatAgent | BaseTeam]:
    """Make the agent or team with a running sandbox, and release everything afterwards."""
    async with AsyncExitStack() as stack:
        client = None
        if job.model.spec:
            client = open_model(job.model)
            stack.push_async_callback(client.close)
        if plan is None and job.component is None:
            assert client is not None
            executor = await stack.enter_async_context(started(with_skills(job.sandbox)))
            choice = AgentChoice(job.team, not job.team)
            limits = read_limits(job.budget, job.model.spec)
            yield make_agent(choice, limits, client, executor, stream=True, stream_output=True)
            return
        if plan is None:
            target = _load(job)
            stack.push_async_callback(_close, target)
        else:
            try:
                target = load_agents(
                    plan, (), _keys(job), trust=job.how.trust, set_later=("approval_func", "approve_tool")
                )
            except RunError as error:
                raise without_key(error, (agent.model for agent in plan.started.agents)) from error
            stack.push_async_callback(_close, target)
            for _, agent in agent_keys(target):
                exchange_model(agent, _resumed_model(job, client, getattr(agent, CLIENT, None)))
        for each in sandboxes_of(target):
            await each.start()
            if plan is not None:
                _put_files_back(plan, each)
        yield target


def _load(job: ChatJob) -> ChatAgent | BaseTeam:
    file = job.component
    assert file is not None
    try:
        loaded = load_component(file, trusted=True)
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except Exception as error:  # whatever the constructor of a component raises
        raise CommandError(f"{file} can't be loaded: {describe_error(error, ModelChoice(str(file)))}") from error
    if not isinstance(loaded, ChatAgent | BaseTeam):
        raise CommandError(f"{file} is the component of a {type(loaded).__name__}, not of an agent or a team.")
    return loaded


def _keys(job: ChatJob) -> str | Callable[[Mapping[str, Any]], str | None]:
    """Return the key of the models of an earlier chat, or what finds it."""
    if job.model.spec:
        return _UNUSED_KEY
    return named_key(job.model.api_key_env) if job.model.api_key_env is not None else key_for


async def _close(target: Any) -> None:
    close = getattr(target, "close", None)
    try:
        if close is not None:
            await close()
    finally:
        for executor in sandboxes_of(target):
            await executor.stop()


def exchange_model(agent: ChatAgent, client: ChatCompletionClient | None) -> None:
    """Give an agent another model client, if it has one."""
    if client is not None and getattr(agent, CLIENT, None) is not None:
        setattr(agent, CLIENT, client)


def _resumed_model(job: ChatJob, client: ChatCompletionClient | None, loaded: Any) -> ChatCompletionClient | None:
    if client is not None or loaded is None:
        return client
    if type(loaded).__name__ == "ReplayChatCompletionClient":  # AutoGen's loses line breaks when it streams
        loaded = RecordedModel([each for each in loaded.chat_completions if not isinstance(each, str)])
    return DeadlineClient(loaded, job.model.timeout_s)


def _put_files_back(plan: Plan, executor: SandboxCodeExecutor) -> None:
    """Write the files that the code had made into a workspace that was temporary."""
    with suppress(RunError, OSError):
        if executor.sandbox.options.work_dir is None and not any(executor.work_dir.iterdir()):
            export_files(plan.run, executor.work_dir)


def sandboxes_of(target: ChatAgent | BaseTeam) -> list[SandboxCodeExecutor]:
    """Return the executors that are sandboxes."""
    return [each for each in executors_of(target) if isinstance(each, SandboxCodeExecutor)]


def model_names(target: ChatAgent | BaseTeam) -> list[str]:
    """Return the names of the models, each once."""
    names = (model_name(info.model) for info in describe_agents(target) if info.model is not None)
    return list(dict.fromkeys(filter(None, names)))


def is_chat(folder: Path) -> bool:
    """Return whether a run is a chat; one that can't be read is none."""
    try:
        return load_run(folder).started.conversation
    except RunError:
        return False
