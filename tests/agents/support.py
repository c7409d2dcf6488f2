"""Words and helpers for tests of agents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core.models import CreateResult, LLMMessage, ModelInfo, RequestUsage, SystemMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeExecutorAgent

FAILS = "Here you are:\n```python\nimport sys\nprint('boom')\nsys.exit(3)\n```\n"
FAILS_CODE = "import sys\nprint('boom')\nsys.exit(3)\n"
FAILED_WORDS = "The script ran, then exited with an error (POSIX exit code: 3)\nIts output was:\nboom\n"
WORKS = "Now it works:\n```python\nprint(42)\n```\n"
WORKS_CODE = "print(42)\n"
SYSTEM = SystemMessage(content=CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE)


def decision(retry: bool, reason: str = "exit without 3") -> str:
    return json.dumps({"reason": reason, "retry": retry})


def model_answer(content: str, *, cost: int = 1, thought: str | None = None) -> CreateResult:
    """An answer that cost `cost` completion tokens."""
    usage = RequestUsage(prompt_tokens=0, completion_tokens=cost)
    return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False, thought=thought)


def token_usage(cost: int) -> RequestUsage:
    return RequestUsage(prompt_tokens=0, completion_tokens=cost)


def scripted(
    *answers: str | CreateResult, vision: bool = False, json_output: bool = False, structured_output: bool = False
) -> ReplayChatCompletionClient:
    """A model that gives these answers, whatever it is told."""
    results = [answer if isinstance(answer, CreateResult) else model_answer(answer) for answer in answers]
    info = ModelInfo(
        vision=vision,
        function_calling=False,
        json_output=json_output,
        family="unknown",
        structured_output=structured_output,
    )
    return ReplayChatCompletionClient(results, info)


def received_by(client: ReplayChatCompletionClient) -> list[list[LLMMessage]]:
    """What the model received, call by call."""
    return [list(call["messages"]) for call in client.create_calls]


def without_ids(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[dict[str, Any]]:
    """Messages without what differs from run to run."""
    return [message.model_dump(exclude={"id", "created_at"}) for message in messages]


def plain(message: BaseAgentEvent | BaseChatMessage) -> dict[str, Any]:
    return without_ids([message])[0]


def contains(new: Any, old: Any) -> bool:
    """Whether JSON has all values of older JSON, except descriptions, which are the docstrings of components."""
    if isinstance(old, dict) and isinstance(new, dict):
        described = "provider" in old
        return all(
            key in new and contains(new[key], old[key]) for key in old if not (described and key == "description")
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(contains, new, old))
    return bool(new == old)
