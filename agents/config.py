"""Agents as configuration and as saved state."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import StructuredMessageFactory
from autogen_core import ComponentModel
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from autogen_codeact.agents.budget import Budget
from autogen_codeact.agents.code_runner import RunOptions
from autogen_codeact.agents.codeact_prompt import TASK, PromptStyle
from autogen_codeact.agents.conversation import DEFAULT_BUDGET, MIN_BUDGET
from autogen_codeact.agents.images import with_encoded_images
from autogen_codeact.agents.journal import MAX_NAME, Journal
from autogen_codeact.executors.tools.configs import dump_approval, dump_tools, refuse_functions
from autogen_codeact.executors.tools.later import Later
from autogen_codeact.executors.tools.policies import loaded

MAX_LINE = 1_000


class AgentConfig(BaseModel):
    """The fields that both configurations have; they mean what the constructor's arguments mean."""

    model_config = ConfigDict(extra="forbid")

    name: str
    code_executor: ComponentModel
    model_client: ComponentModel | None = None
    model_context: ComponentModel | None = None
    model_client_stream: bool = False
    stream_output: bool = False
    description: str | None = None
    system_message: str | None = None
    supported_languages: list[str] | None = None
    tools: list[ComponentModel] = Field(default_factory=list)
    approval_func: ComponentModel | None = None
    approve_tool: ComponentModel | None = None
    describe_environment: bool = True
    context_budget: int | None = Field(default=None, ge=MIN_BUDGET)

    @model_serializer(mode="wrap")
    def _keep_explicit_none(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # AutoGen dumps with exclude_none; what is switched off would come back as the default.
        return {**serialise(self), "system_message": self.system_message, "context_budget": self.context_budget}


class CodeExecutorAgentConfig(AgentConfig):
    """The configuration of a `CodeExecutorAgent`."""

    max_retries_on_error: int = Field(default=0, ge=0)
    system_message: str | None = CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE
    sources: list[str] | None = None


def _handoff_fields(value: Any) -> Any:
    """Return the fields of a handoff, which may be the name of an agent; AutoGen's `Handoff` itself raises for other things."""
    if isinstance(value, str):
        return {"target": value}
    if not isinstance(value, Handoff) and not (isinstance(value, dict) and isinstance(value.get("target"), str)):
        raise ValueError(  # noqa: TRY004 - pydantic reports only these
            "a handoff is the name of an agent, or an object with the name as its target"
        )
    return value


class CodeActAgentConfig(AgentConfig):
    """The configuration of a `CodeActAgent`."""

    model_client: ComponentModel
    description: str = "Solves tasks by writing code and running it, step by step."
    system_message: str | None = TASK
    prompt_style: PromptStyle = "markdown"
    handoffs: list[Annotated[Handoff, BeforeValidator(_handoff_fields)]] | None = None
    setup: str | None = None
    budget: Budget | None = None
    context_budget: int | None = Field(default=DEFAULT_BUDGET, ge=MIN_BUDGET)
    structured_message_factory: ComponentModel | None = None


class CodeExecutorAgentState(BaseModel):
    """The state of a `CodeExecutorAgent`: conversation, journal of the session, if any, and calls of interrupted turns."""

    type: str = Field(default="CodeExecutorAgentState", max_length=MAX_NAME)
    version: str = Field(default="1.0.0", max_length=MAX_NAME)
    llm_context: Mapping[str, Any] = Field(default_factory=lambda: {"messages": []})
    journal: Journal | None = None
    interrupted: list[Annotated[str, Field(max_length=MAX_LINE)]] = Field(default_factory=list, max_length=MAX_LINE)


class CodeActAgentState(CodeExecutorAgentState):
    """The state of a `CodeActAgent`."""

    type: str = Field(default="CodeActAgentState", max_length=MAX_NAME)


S = TypeVar("S", bound=CodeExecutorAgentState)
MAX_PROBLEMS = 5
NO_FUNCTION = (
    "Cannot serialize {agent} with approval_func set: a function has no configuration. "
    "Dump the agent without approval_func, and pass approval_func again after loading."
)


async def read_state(kind: type[S], state: object, names: Collection[str], context: ChatCompletionContext) -> S:
    """Check an agent's saved state, which may be large or hostile, and load its conversation."""
    try:
        # In a thread: validating a large state takes long.
        loaded = await asyncio.to_thread(kind.model_validate, state)
    except ValidationError as error:
        raise ValueError(f"The state can't be loaded: {problems(error)}") from None
    if loaded.type not in names:
        raise ValueError(f"This is a {loaded.type}, not the state of a {kind.__name__.removesuffix('State')}.")
    before = await context.save_state()
    try:
        await context.load_state(await asyncio.to_thread(with_encoded_images, loaded.llm_context))
    except (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError) as error:
        await context.load_state(before)
        reason = (
            problems(error) if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"[:MAX_NAME]
        )
        raise ValueError(f"The state can't be loaded: llm_context: {reason}") from None
    return loaded


def problems(error: ValidationError) -> str:
    """List the invalid fields and what is wrong with them, without their values, which may be large."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'the state'}: {each['msg']}"[:MAX_NAME] for each in found]
    more = f"; and {len(lines) - MAX_PROBLEMS} more" if len(lines) > MAX_PROBLEMS else ""
    return "; ".join(lines[:MAX_PROBLEMS]) + more


def dump_parts(
    components: tuple[CodeExecutor, ChatCompletionClient | None, ChatCompletionContext],
    options: RunOptions,
    *,
    agent: str,
) -> dict[str, Any]:
    """Make the fields of an agent's configuration that are components."""
    executor, client, context = components
    later = options.approval_func if isinstance(options.approval_func, Later) else None
    if later is None and options.approval_func is not None:
        refuse_functions(["approval_func"], NO_FUNCTION.format(agent=agent))
    return {
        "code_executor": executor.dump_component(),
        "model_client": client.dump_component() if client is not None else None,
        "model_context": context.dump_component(),
        "tools": dump_tools(options.tools),
        "approval_func": later.dump_component() if later is not None else None,
        "approve_tool": dump_approval(options.approve_tool),
    }


def dump_type(options: RunOptions) -> ComponentModel | None:
    """Make a configuration of an answer's type: its JSON schema, in the form that AutoGen's `AssistantAgent` uses."""
    if options.output_type is None:
        return None
    factory = StructuredMessageFactory(input_model=options.output_type)
    return factory.dump_component()


def _loaded_type(model: ComponentModel | None) -> dict[str, Any]:
    """Make the constructor's arguments; the type has the fields of the one that was dumped, not its validators."""
    factory = _loaded(StructuredMessageFactory, model)
    if factory is None:
        return {}
    return {"output_content_type": factory.ContentModel}


def load_parts(config: AgentConfig) -> dict[str, Any]:
    """Load the components of an agent's configuration."""
    plain = type(config).model_fields.keys() - {"structured_message_factory"}
    return {
        **{name: getattr(config, name) for name in plain},
        **_loaded_type(getattr(config, "structured_message_factory", None)),
        "code_executor": _loaded(CodeExecutor, config.code_executor),
        "model_client": _loaded(ChatCompletionClient, config.model_client),
        "model_context": _loaded(ChatCompletionContext, config.model_context),
        **loaded(config.tools, config.approve_tool),
        "approval_func": _loaded(Later, config.approval_func),
    }


def _loaded(kind: type[Any], model: ComponentModel | None) -> Any:
    return kind.load_component(model) if model is not None else None
