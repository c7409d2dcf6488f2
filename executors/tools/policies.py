"""Policies that approve calls to host tools: a list, a user at the terminal; each is an AutoGen component."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from autogen_core import Component, ComponentBase, ComponentModel
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.executors.tools.configs import load_tools
from codeact_sandbox.tools.approval import ToolApproval, ToolApprovalRequest, matches
from codeact_sandbox.tools.payloads import is_small, offload
from codeact_sandbox.tools.question_text import shown_call
from codeact_sandbox.tools.terminal import Question, ask

MAX_REASON_CHARS = 1_000
YES, ALWAYS, NO = ("y", "yes"), ("a", "always"), ("n", "no", "")


class ToolPolicy(ABC, ComponentBase[BaseModel]):
    """Decides whether a call to a host tool may be made; pass it as `approve_tool=`."""

    component_type = "tool_policy"
    component_config_schema: Any
    """Its fields are the constructor's arguments, and attributes of the same names."""

    @abstractmethod
    async def __call__(self, request: ToolApprovalRequest) -> ToolApproval:
        """Decide whether a call may be made."""

    def _to_config(self) -> Any:
        given = {name: getattr(self, name) for name in self.component_config_schema.model_fields}
        parts = {name: part.dump_component() for name, part in given.items() if isinstance(part, ComponentBase)}
        return self.component_config_schema(**{**given, **parts})

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        given = dict(config)
        if "otherwise" in given:
            given["otherwise"] = load_policy(given["otherwise"])
        return cls(**given)


class PolicyConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AllowToolsConfig(PolicyConfig):
    """What an `AllowTools` is made of."""

    names: list[str]
    otherwise: ComponentModel | None = None


class AllowTools(ToolPolicy, Component[AllowToolsConfig]):
    """Allows the tools on a list; another policy decides about the others.

    Args:
        names: Names of tools, or patterns with `*` and `?`, such as `get_*`. Those of servers and workbenches have its
            name in front: `crm.find_*`, `McpWorkbench.*`. `*` alone is all.
        otherwise: Decides about all other tools. Default: they are refused.
    """

    component_config_schema = AllowToolsConfig
    component_provider_override = "autogen_codeact.executors.AllowTools"

    def __init__(self, names: Sequence[str], otherwise: ToolPolicy | None = None) -> None:
        if isinstance(names, str):
            raise TypeError(f"names must be a list such as [{names!r}], not a string")
        self.names = list(names)
        self.otherwise = otherwise

    async def __call__(self, request: ToolApprovalRequest) -> ToolApproval:
        if any(matches(request.name, pattern) for pattern in self.names):
            return ToolApproval(True)
        if self.otherwise is not None:
            return await self.otherwise(request)
        return ToolApproval(False, f"the tool {request.name} is not on the list of allowed tools")


class AskPersonConfig(PolicyConfig):
    """What an `AskPerson` is made of."""

    timeout: float | None = Field(default=None, gt=0)


class AskPerson(ToolPolicy, Component[AskPersonConfig]):
    """Asks the user at the terminal, one question at a time; without a terminal calls are refused.

    Input typed before the prompt is discarded. After the code has withdrawn a question, a yes to the next question must include a
    code from its prompt, so that an answer to one question can't allow another call.

    Args:
        timeout: Seconds to wait for an answer; after that the call is refused. Default: as long as the block runs.
    """

    component_config_schema = AskPersonConfig
    component_provider_override = "autogen_codeact.executors.AskPerson"

    def __init__(self, timeout: float | None = None) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, not {timeout}")
        self.timeout = timeout
        self._always: set[str] = set()

    async def __call__(self, request: ToolApprovalRequest) -> ToolApproval:
        """Ask, unless the user has said `always` of this tool."""
        name = request.name
        if name in self._always:
            return ToolApproval(True)

        try:
            call = await offload(not is_small(request.arguments), lambda: shown_call(name, request.arguments))
        except ValueError as error:
            return ToolApproval(False, f"the call can't be approved: {error}")
        prompt = f"Allow {name}? [y]es, [a]lways this tool, or why not (Enter: no): "
        question = Question(name, f"The code wants to call {call}\n", prompt, YES + ALWAYS, self.timeout)
        try:
            answer = await ask(question, lambda: name in self._always)
        except EOFError as error:
            return ToolApproval(False, str(error))
        except TimeoutError:
            return ToolApproval(False, f"no answer within {self.timeout:g} s")
        word = _normalise(answer)
        if word in ALWAYS:  # before another question is asked in this event loop
            self._always.add(name)
        if word in YES or word in ALWAYS:
            return ToolApproval(True)
        why = "" if word in NO else f": {answer.strip()[:MAX_REASON_CHARS]}"
        return ToolApproval(False, f"the person at the terminal said no{why}")


def _normalise(answer: str) -> str:
    return answer.strip().lower()


def load_policy(model: ComponentModel | None) -> ToolPolicy | None:
    if model is None:
        return None
    if model.component_type != "tool_policy":
        raise TypeError(f"approve_tool names {model.provider}, a {model.component_type}; it must be a tool_policy.")
    return ToolPolicy.load_component(model)


def loaded(tools: Sequence[ComponentModel], approve_tool: ComponentModel | None) -> dict[str, Any]:
    """Return the arguments `tools` and `approve_tool` of a config."""
    return {"tools": load_tools(tools), "approve_tool": load_policy(approve_tool)}
