"""Describes the agents of a run for its log: names, tools, and configuration without functions and secrets."""

from __future__ import annotations

import os
import platform
import socket
from collections import Counter
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core import ComponentBase
from autogen_core.models import ChatCompletionClient
from pydantic import SecretStr

from autogen_codeact.agents.code_runner import RunOptions
from autogen_codeact.agents.model_calls import innermost
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.tools.configs import omitting_functions
from autogen_codeact.runs.events import AgentInfo, ProcessInfo
from autogen_codeact.runs.redaction import known_secrets
from autogen_codeact.teams.parts import agents_of, models_of

PACKAGES = ("autogen-codeact", "autogen-agentchat", "autogen-core")


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
        callables = {name: getattr(options, name) for name in ("approval_func", "approve_tool", "redact")}
        functions = [n for n, function in callables.items() if not isinstance(function, ComponentBase | None)]
    return AgentInfo(
        name=name,
        kind=type(agent).__name__,
        description=agent.description,
        executor=type(executor).__name__ if executor is not None else None,
        model=_model_name(client) if isinstance(client, ChatCompletionClient) else None,
        tools=tool_names(agent),
        functions=functions,
    )


def tool_names(agent: ChatAgent) -> list[str]:
    """Return the names of an agent's host tools, and of those that its executor has of its own, each once."""
    options = getattr(agent, "_options", None)
    tools = options.tools if isinstance(options, RunOptions) else getattr(agent, "_tools", None) or ()
    executor = capabilities_of(getattr(agent, "code_executor", None)).tools
    own = (executor.known_tools or ()) if executor is not None else ()
    return list(dict.fromkeys(tool_name(tool) for tool in (*tools, *own)))


def tool_name(tool: object) -> str:
    """Return the name of a function or a tool."""
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or type(tool).__name__)


def _model_name(client: ChatCompletionClient) -> str:
    client = innermost(client)
    arguments = getattr(client, "_create_args", None)
    name = arguments.get("model") if isinstance(arguments, dict) else None
    return name if isinstance(name, str) else type(client).__name__


Dumped = dict[str, Any] | str
"""The configuration of an agent or a team with its secrets, or why there is none."""


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
