"""Words and helpers for tests of the agent that acts in code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    TextMessage,
)
from autogen_core.code_executor import CodeBlock
from autogen_core.models import AssistantMessage, UserMessage

from autogen_codeact.executors import ExecutionResult
from tests.agents.support import plain, token_usage, without_ids


def python(code: str) -> str:
    """A message with code."""
    return f"```python\n{code}\n```"


def from_agent(words: str) -> UserMessage:
    return UserMessage(content=words, source="actor")


def user(words: str) -> UserMessage:
    return UserMessage(content=words, source="user")


def model(words: str) -> AssistantMessage:
    return AssistantMessage(content=words, source="actor")


def generation_event(step: int, text: str, *code: str, cost: int = 1, **metadata: str) -> dict[str, Any]:
    event = CodeGenerationEvent(
        retry_attempt=step - 1,
        content=text,
        code_blocks=[CodeBlock(language="python", code=block) for block in code],
        source="actor",
        models_usage=token_usage(cost),
        metadata={"step": str(step), **metadata},
    )
    return plain(event)


def execution_event(step: int, output: str, **fields: Any) -> dict[str, Any]:
    """An execution as `comparable` gives it."""
    result = ExecutionResult(exit_code=fields.pop("exit_code", 0), output=output, code_file=None, **fields)
    metadata = {"outcome": result.outcome, "exit_code": str(result.exit_code), "state": result.state, "step": str(step)}
    if result.error is not None:
        metadata["error"] = result.error.type
    event = CodeExecutionEvent(retry_attempt=step - 1, result=result, source="actor", metadata=metadata)
    return comparable([event])[0]


def answer_message(text: str, *, cost: int | None = 1, **metadata: str) -> dict[str, Any]:
    usage = token_usage(cost) if cost is not None else None
    return plain(TextMessage(content=text, source="actor", models_usage=usage, metadata=metadata))


def comparable(messages: Any) -> list[dict[str, Any]]:
    """Messages without what differs from run to run."""
    return without_ids([_timeless(message) for message in messages])


def _timeless(message: BaseAgentEvent | BaseChatMessage) -> BaseAgentEvent | BaseChatMessage:
    if not isinstance(message, CodeExecutionEvent):
        return message
    result = message.result
    assert isinstance(result, ExecutionResult)
    calls = tuple(replace(call, duration_s=0.0) for call in result.tool_calls)
    metadata = {name: value for name, value in message.metadata.items() if name != "duration_s"}
    same = replace(result, duration_s=0.0, tool_calls=calls)
    return message.model_copy(update={"result": same, "metadata": metadata})
