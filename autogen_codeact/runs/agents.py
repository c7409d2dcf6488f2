"""The agents of a run: described for its log without functions and secrets, made from it again, or compared with it."""

from __future__ import annotations

import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core import ComponentBase, ComponentLoader
from autogen_core.models import ChatCompletionClient
from pydantic import SecretStr

from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.agents.code_runner import RunOptions
from autogen_codeact.agents.model import model_name
from autogen_codeact.agents.model_calls import innermost
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.tools.configs import omitting_functions
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.events import AgentInfo, ProcessInfo
from autogen_codeact.runs.plan import Plan, RunNotResumableError
from autogen_codeact.runs.redaction import known_secrets
from autogen_codeact.teams.loading import RefusedConfigError, check_untrusted
from autogen_codeact.teams.parts import agents_of, models_of

PACKAGES = ("autogen-codeact", "autogen-agentchat", "autogen-core")
Dumped = dict[str, Any] | str
"""The configuration of an agent or a team with its secrets, or why there is none."""
KeyOf = Callable[[Mapping[str, Any]], str | None]
"""Returns the key for the configuration of a model client, or None."""


def agent_keys(agent_or_team: ChatAgent | BaseTeam) -> list[tuple[str, ChatAgent]]:
    """Return the agents of a run with the names that they have in its log."""
    seen = Counter[str]()
    keys = []
    for agent in agents_of(agent_or_team):
        seen[agent.name] += 1
        number = seen[agent.name]
        keys.append((agent.name if number == 1 else f"{agent.name}#{number}", agent))
    return keys


def describe_agents(agent_or_team: ChatAgent | BaseTeam) -> list[AgentInfo]:
    """Return the description of each agent for the log."""
    return [_describe(name, agent) for name, agent in agent_keys(agent_or_team)]


def _describe(name: str, agent: ChatAgent) -> AgentInfo:
    client = getattr(agent, "_model_client", None)
    executor = getattr(agent, "_code_executor", None)
    options = getattr(agent, "_options", None)
    functions: list[str] = []
    if isinstance(options, RunOptions):
        callables = {name: getattr(options, name) for name in ("approval_func", "approve_tool")}
        functions = [n for n, function in callables.items() if not isinstance(function, ComponentBase | None)]
    return AgentInfo(
        name=name,
        kind=type(agent).__name__,
        description=agent.description,
        executor=type(executor).__name__ if executor is not None else None,
        model=model_name(client) if isinstance(client, ChatCompletionClient) else None,
        tools=tool_names(agent),
        functions=functions,
    )


def tool_names(agent: ChatAgent) -> list[str]:
    """Return the names of an agent's host tools, and of those that its executor has of its own, each once."""
    options = getattr(agent, "_options", None)
    tools = options.tools if isinstance(options, RunOptions) else getattr(agent, "_tools", None) or ()
    executor = capabilities_of(getattr(agent, "code_executor", None)).sandbox
    own = (executor.known_tools or ()) if executor is not None else ()
    return list(dict.fromkeys(tool_name(tool) for tool in (*tools, *own)))


def tool_name(tool: object) -> str:
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or type(tool).__name__)


def dump(agent_or_team: ChatAgent | BaseTeam) -> Dumped:
    """Return the configuration of an agent or a team, without functions but with secrets, or why there is none."""
    try:
        with omitting_functions():
            return agent_or_team.dump_component().model_dump()
    except Exception as error:  # noqa: BLE001 - foreign components raise anything
        return f"{type(error).__name__}: {error}"


def remove_secrets(value: Any, at: str, removed: list[str]) -> None:
    """Remove the secrets from a configuration, and note their JSON pointers."""
    for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(each, SecretStr):
            removed.append(f"{at}/{key}")
            if isinstance(value, dict):
                del value[key]
            else:
                value[key] = None
        elif isinstance(each, dict | list):
            remove_secrets(each, f"{at}/{key}", removed)


def secrets_of(agent_or_team: ChatAgent | BaseTeam, dumped: Dumped | None = None) -> set[str]:
    """Return the secrets of the models of an agent or a team, and those in environment variables."""
    configurations: list[object] = [dump(agent_or_team) if dumped is None else dumped]
    for client in map(innermost, models_of(agent_or_team)):
        configurations.append({name: value for name, value in vars(client).items() if isinstance(value, dict)})
        configurations.append({"api_key": getattr(getattr(client, "_client", None), "api_key", None)})
    return known_secrets(*configurations)


def process_info() -> ProcessInfo:
    """Return the description of this process for the log."""
    return ProcessInfo(pid=os.getpid(), host=socket.gethostname(), versions=dict(_versions()))


@cache
def _versions() -> dict[str, str]:
    # Of what is imported already; reading them takes milliseconds.
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def load_agents(
    plan: Plan,
    tools: Sequence[Any],
    api_key: str | KeyOf | None = None,
    *,
    trust: bool = False,
    set_later: Collection[str] = (),
) -> ChatAgent | BaseTeam:
    """Make the agent or team of a run from the configuration in its log."""
    started, path = plan.started, plan.run.folder.path
    if started.component is None:
        raise RunNotResumableError(
            f"{path} has no configuration of the {started.kind} {started.name!r} ({started.component_error}): make it in your "
            "program as for the first time, and pass it as agent=."
        )
    if functions := {name for info in started.agents for name in info.functions if name not in set_later}:
        raise RunNotResumableError(
            f"{path} can't be continued without {_listed(functions)}: functions are not in the log. Make the {started.kind} in "
            "your program as for the first time, and pass it as agent=."
        )
    tools_by_name = {tool_name(tool): tool for tool in tools}
    loaded: object
    try:
        component = _allowed(plan, trust=trust)
        if api_key is not None:
            for pointer in started.secrets:
                _put(component, pointer, api_key)
        loaded = ComponentLoader.load_component(component)
    except RunError:
        raise
    except Exception as error:  # whatever a component of a third party raises
        raise RunNotResumableError(
            f"The {started.kind} {started.name!r} of {path} can't be made from its configuration: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(loaded, ChatAgent | BaseTeam):
        raise RunNotResumableError(
            f"The configuration in {path} is that of a {type(loaded).__name__}, not of an agent."
        )
    known = set(_tools_of(loaded))
    for (_, agent), info in zip(agent_keys(loaded), started.agents, strict=False):
        own = [tools_by_name[name] for name in info.tools if name in tools_by_name and name not in known]
        executor = capabilities_of(getattr(agent, "code_executor", None)).sandbox
        if own and executor is not None:
            executor.add_tools(own)
    _skip_recorded_answers(plan, loaded)
    return loaded


def _skip_recorded_answers(plan: Plan, target: ChatAgent | BaseTeam) -> None:
    """Have AutoGen's replay clients go on after the answers that they have given before."""
    for key, agent in agent_keys(target):
        client: Any = getattr(agent, "_model_client", None)
        history = plan.histories.get(key)
        # By name: importing it takes long, and it is there if the configuration has one.
        if history is not None and type(client).__name__ == "ReplayChatCompletionClient":
            client.chat_completions = client.chat_completions[history.answers :]


def _allowed(plan: Plan, *, trust: bool) -> dict[str, Any]:
    """Return a copy of the configuration, if it may be loaded: that can run code, and give it folders and keys."""
    started, path = plan.started, plan.run.folder.path
    component = deepcopy(started.component) or {}
    if trust or plan.chain is not None:
        return component
    try:
        return check_untrusted(component, allow_keys=True)
    except ValueError as error:
        reasons = error.refused if isinstance(error, RefusedConfigError) else [str(error)]
        raise RunNotResumableError(
            "\n- ".join([f"{path} was not made by you on this machine, and its configuration needs trust:", *reasons])
            + "\nIf you trust who made it, continue it with --trust (trust=True in Python), or pass your own agent as agent=."
        ) from None


def _put(component: Any, pointer: str, api_key: str | KeyOf) -> None:
    *parents, name = pointer.split("/")[1:]
    for parent in parents:
        component = component[int(parent) if isinstance(component, list) else parent]
    if name == "api_key" and isinstance(component, dict):
        key = api_key if isinstance(api_key, str) else api_key(component)
        if key is not None:
            component[name] = key


def check_agents(plan: Plan, target: ChatAgent | BaseTeam) -> None:
    """Check that agents are those of a run, as far as the log can tell."""
    started, path = plan.started, plan.run.folder.path
    agents = dict(agent_keys(target))
    names = [info.name for info in started.agents]
    if list(agents) != names:
        raise RunNotResumableError(
            f"{path} is a run of {_listed(names)}, not of {_listed(agents)}: pass the same {started.kind} as agent=."
        )
    if missing := _missing({name for info in started.agents for name in info.tools}, target):
        raise RunNotResumableError(
            f"{path} can't be continued without its host tools {_listed(missing)}: functions are not in the log. Pass them to "
            "the agent, or as tools=[…] to autogen_codeact.runs.resume."
        )


def _missing(needed: set[str], target: ChatAgent | BaseTeam) -> set[str]:
    """Return the host tools that no agent has, as far as that is known before workbenches are started."""
    executors = (capabilities_of(getattr(agent, "code_executor", None)).sandbox for _, agent in agent_keys(target))
    if any(executor is not None and executor.known_tools is None for executor in executors):
        return set()
    return needed - set(_tools_of(target))


def _tools_of(target: ChatAgent | BaseTeam) -> Iterable[str]:
    for _, agent in agent_keys(target):
        yield from tool_names(agent)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no one"


def set_approval(target: ChatAgent | BaseTeam, approve: Any) -> bool:
    """Have a function approve the code of all agents; return whether there is an agent that runs code."""
    found = False
    for _, agent in agent_keys(target):
        if isinstance(agent, BaseCodeAgent):
            agent.use_approval(approve)
            found = True
        elif hasattr(agent, "_approval_func"):
            agent._approval_func = approve
            found = True
    return found


def asks_first(plan: Plan, *, wanted: bool) -> bool:
    """Return whether the user is asked before code runs."""
    return wanted or plan.chain is None or any("approval_func" in info.functions for info in plan.started.agents)
