"""Agents and teams of a batch: made by a function of the caller, or from a component config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Self, cast

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core import Component, ComponentLoader, ComponentModel
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient
from pydantic import BaseModel

from autogen_codeact.agents.model_calls import ModelMiddleware
from autogen_codeact.batch.errors import UnusableAgentError
from autogen_codeact.batch.tasks import Task
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from autogen_codeact.sandbox.pool import UNFIT

AgentOrTeam = ChatAgent | BaseTeam
MakeAgent = Callable[..., Any]
"""Called with an executor, and with the `Task` if it takes a second argument; returns an agent or a team, or awaits one."""
OWN = {
    DockerCommandLineCodeExecutor: "docker",
    BubblewrapCommandLineCodeExecutor: "bubblewrap",
}


@dataclass
class Parts:
    """Replacements for parts of a config while it is loaded.

    Args:
        executors: By number.
        models: By number.
    """

    executors: dict[int, CodeExecutor] = field(default_factory=dict)
    models: dict[int, ChatCompletionClient] = field(default_factory=dict)


_PARTS: ContextVar[Parts] = ContextVar("parts of a component config")


class _Number(BaseModel):
    number: int


class LeasedExecutor(CodeExecutor, Component[_Number]):
    """Placeholder in a config for an existing executor; loading it returns that executor."""

    component_config_schema = _Number
    component_provider_override = "autogen_codeact.batch.components.LeasedExecutor"

    @classmethod
    def _from_config(cls, config: _Number) -> Self:
        return cast("Self", _PARTS.get().executors[config.number])


class SharedModel(ModelMiddleware, Component[_Number]):
    """Placeholder in a config for a model client that all tasks share; loading it returns that client."""

    component_config_schema = _Number
    component_provider_override = "autogen_codeact.batch.components.SharedModel"

    @classmethod
    def _from_config(cls, config: _Number) -> Self:
        return cast("Self", _PARTS.get().models[config.number])


@dataclass
class ExecutorPart:
    """An executor of a config.

    Args:
        kind: Its backend, if it comes from a pool, else None.
        component: Its config.
    """

    kind: str | None
    component: dict[str, Any]

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of its sandbox, without a folder.

        Raises:
            Exception: It can't be made from its config.
        """
        executor: Any = CodeExecutor.load_component(self.component)
        values: dict[str, Any] = executor.sandbox.options.values()
        return {name: value for name, value in values.items() if name != "work_dir"}


class AgentTemplate:
    """A component config of an agent or a team, whose executors and models are taken from elsewhere.

    Args:
        component: The config.

    Raises:
        UnusableAgentError: It is none.
    """

    def __init__(self, component: Mapping[str, Any] | ComponentModel) -> None:
        model = component.model_dump() if isinstance(component, ComponentModel) else deepcopy(dict(component))
        if not isinstance(model.get("provider"), str):
            raise UnusableAgentError(
                "a component config is an object with `provider` and `config`: see dump_component()"
            )
        self.executors: list[ExecutorPart] = []
        self._models: list[dict[str, Any]] = []
        self._shared: dict[int, ChatCompletionClient] = {}
        self._component = self._replaced(model)

    def load(self, executors: Mapping[int, CodeExecutor]) -> Any:
        """Make the agent or team.

        Args:
            executors: Those of `self.executors`, by their number.

        Raises:
            Exception: It can't be made from its config.
        """
        for number, model in enumerate(self._models):
            if number not in self._shared:
                self._shared[number] = ChatCompletionClient.load_component(model)
        token = _PARTS.set(Parts(dict(executors), self._shared))
        try:
            return ComponentLoader.load_component(deepcopy(self._component), expected=object)
        finally:
            _PARTS.reset(token)

    async def close(self) -> None:
        """Close the model clients."""
        shared, self._shared = self._shared, {}
        for client in shared.values():
            await client.close()

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._replaced(each) for each in value]
        if not isinstance(value, dict):
            return value
        named = _class_of(value)
        if named is not None and issubclass(named, CodeExecutor):
            self.executors.append(ExecutorPart(_pool_kind(named, value), value))
            return _stub(LeasedExecutor, "code_executor", len(self.executors) - 1)
        if named is not None and issubclass(named, ChatCompletionClient) and _is_stateless(named):
            if value not in self._models:
                self._models.append(value)
            return _stub(SharedModel, "model", self._models.index(value))
        return {key: self._replaced(each) for key, each in value.items()}


def _stub(kind: type[Any], component_type: str, number: int) -> dict[str, Any]:
    return {
        "provider": kind.component_provider_override,
        "component_type": component_type,
        "version": 1,
        "component_version": 1,
        "config": {"number": number},
    }


def _class_of(component: Mapping[str, Any]) -> type[Any] | None:
    provider = component.get("provider")
    if not isinstance(provider, str) or not isinstance(component.get("config"), dict):
        return None
    if component.get("component_type") not in (None, "code_executor", "model"):
        return None
    module, _, name = provider.rpartition(".")
    try:
        named = getattr(import_module(module), name, None) if module else None
    except ImportError:  # the loader says what is missing
        return None
    return named if isinstance(named, type) else None


def _is_stateless(named: type[Any]) -> bool:
    # A replay answers from a script: each task has its own.
    return "Replay" not in "".join(kind.__name__ for kind in named.__mro__)


def _pool_kind(named: type[Any], component: Mapping[str, Any]) -> str | None:
    config = component["config"]
    fits = all(config.get(name, allowed) in (allowed, None) for name, (allowed, _) in UNFIT.items())
    if config.get("tools") or config.get("approve_tool") or not fits:
        return None
    return next((kind for own, kind in OWN.items() if named is own), None)


def is_component(value: object) -> bool:
    """Return whether something is a component config and not a function."""
    return isinstance(value, Mapping | ComponentModel)


async def call_make_agent(make: MakeAgent, executor: CodeExecutor, task: Task) -> AgentOrTeam:
    """Have the caller's function make an agent or a team.

    Raises:
        UnusableAgentError: It has returned something else.
        Exception: What the function raised.
    """
    made = make(executor, task) if takes_task(make) else make(executor)
    if inspect.isawaitable(made):
        made = await made
    return checked(made)


def checked(made: object) -> AgentOrTeam:
    """Return an agent or a team.

    Raises:
        UnusableAgentError: It is something else.
    """
    if not isinstance(made, ChatAgent | BaseTeam):
        raise UnusableAgentError(f"make_agent has to return an agent or a team, not a {type(made).__name__}")
    return made


def takes_task(make: MakeAgent) -> bool:
    """Return whether a function takes the task, beside the executor."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each for each in by_position if each.default is each.empty]
    return (
        len(required) > 1
        or any(each.kind == each.VAR_POSITIONAL for each in parameters)
        or (len(by_position) > 1 and by_position[1].name == "task")
    )
