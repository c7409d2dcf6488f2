"""Policies that approve calls to host tools: a list, a user at the terminal, a model; each is an AutoGen component."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from autogen_core import Component, ComponentBase, ComponentModel
from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.executors.tools.adapters import ToolApprovalRequest, with_token
from autogen_codeact.executors.tools.configs import load_tools
from autogen_codeact.sandbox.tools import policies
from autogen_codeact.sandbox.tools.approval import ToolApproval
from autogen_codeact.sandbox.tools.policies import INSTRUCTIONS


class ToolPolicy(ABC, ComponentBase[BaseModel]):
    """Decides whether a call to a host tool may be made; pass it as `approve_tool=`."""

    component_type = "tool_policy"

    @abstractmethod
    async def __call__(self, request: ToolApprovalRequest) -> ToolApproval:
        """Decide whether a call may be made.

        Args:
            request: The call.

        Returns:
            The decision; the calling code gets the reason for a refusal.
        """


class PolicyConfig(BaseModel):
    """What a policy is made of."""

    model_config = ConfigDict(extra="forbid")


class AllowToolsConfig(PolicyConfig):
    """What an `AllowTools` is made of."""

    names: list[str]
    otherwise: ComponentModel | None = None


class AllowTools(policies.AllowTools, ToolPolicy, Component[AllowToolsConfig]):
    """Allows the tools on a list; another policy decides about the others.

    Args:
        names: Names of tools, or patterns with `*` and `?`, such as `get_*`.
        otherwise: Decides about all other tools. Default: they are refused.
    """

    component_config_schema = AllowToolsConfig
    component_provider_override = "autogen_codeact.executors.AllowTools"

    def __init__(self, names: Sequence[str], otherwise: ToolPolicy | None = None) -> None:
        super().__init__(names, otherwise)
        self._policy = otherwise

    def _to_config(self) -> AllowToolsConfig:
        return AllowToolsConfig(
            names=self.names, otherwise=self._policy.dump_component() if self._policy is not None else None
        )

    @classmethod
    def _from_config(cls, config: AllowToolsConfig) -> Self:
        return cls(config.names, load_policy(config.otherwise))


class AskPersonConfig(PolicyConfig):
    """What an `AskPerson` is made of."""

    timeout: float | None = Field(default=None, gt=0)


class AskPerson(policies.AskPerson, ToolPolicy, Component[AskPersonConfig]):
    __doc__ = policies.AskPerson.__doc__

    component_config_schema = AskPersonConfig
    component_provider_override = "autogen_codeact.executors.AskPerson"

    def _to_config(self) -> AskPersonConfig:
        return AskPersonConfig(timeout=self.timeout)

    @classmethod
    def _from_config(cls, config: AskPersonConfig) -> Self:
        return cls(config.timeout)


class ApprovalAnswer(BaseModel):
    """The answer of a model about a call."""

    reason: str
    approved: bool


class AskModelConfig(PolicyConfig):
    """What an `AskModel` is made of."""

    model_client: ComponentModel
    instructions: str
    timeout: float = Field(default=60, gt=0)


class AskModel(policies.AskModel, ToolPolicy, Component[AskModelConfig]):
    """Asks a model; a call is refused if the answer can't be parsed.

    Args:
        model_client: The model.
        instructions: How it should decide. Default: a careful paragraph.
        timeout: Seconds for an answer; after that the call is refused. Default 60.
    """

    component_config_schema = AskModelConfig
    component_provider_override = "autogen_codeact.executors.AskModel"

    def __init__(
        self, model_client: ChatCompletionClient, instructions: str = INSTRUCTIONS, timeout: float = 60
    ) -> None:
        super().__init__(self._answer_of_model, instructions, timeout)
        self._client = model_client

    async def _answer_of_model(self, instructions: str, question: str) -> str:
        messages: list[LLMMessage] = [
            SystemMessage(content=instructions),
            UserMessage(content=question, source="program"),
        ]
        info = self._client.model_info
        form: Any = ApprovalAnswer if info.get("structured_output") else True if info.get("json_output") else None
        answer = await with_token(
            lambda token: self._client.create(messages, json_output=form, cancellation_token=token)
        )
        return answer.content if isinstance(answer.content, str) else ""

    def _to_config(self) -> AskModelConfig:
        return AskModelConfig(
            model_client=self._client.dump_component(), instructions=self.instructions, timeout=self.timeout
        )

    @classmethod
    def _from_config(cls, config: AskModelConfig) -> Self:
        return cls(ChatCompletionClient.load_component(config.model_client), config.instructions, config.timeout)


def load_policy(model: ComponentModel | None) -> ToolPolicy | None:
    """Load the policy of a config.

    Raises:
        TypeError: It is not a policy.
    """
    if model is None:
        return None
    if model.component_type != "tool_policy":
        raise TypeError(f"approve_tool names {model.provider}, a {model.component_type}; it must be a tool_policy.")
    return ToolPolicy.load_component(model)


def loaded(tools: Sequence[ComponentModel], approve_tool: ComponentModel | None) -> dict[str, Any]:
    """Return the arguments `tools` and `approve_tool` of a config."""
    return {"tools": load_tools(tools), "approve_tool": load_policy(approve_tool)}
