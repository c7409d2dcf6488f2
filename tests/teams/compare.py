"""Runs a team of ours and AutoGen's with the same scripts, and compares what was said and what the models received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_core.models import CreateResult, LLMMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

Models = dict[str, ReplayChatCompletionClient]


class Recording(ReplayChatCompletionClient):
    """Notes the messages as they are at the call; AutoGen's selector appends to the list later."""

    async def create(self, messages: Sequence[LLMMessage], **kwargs: Any) -> CreateResult:
        return await super().create([*messages], **kwargs)


def models(**scripts: Sequence[str]) -> Models:
    """One scripted model for each name."""
    return {name: Recording(list(script)) for name, script in scripts.items()}


def agents(clients: Models, *names: str, **kwargs: Any) -> list[AssistantAgent]:
    return [AssistantAgent(name, clients[name], description=f"Is {name}.", **kwargs) for name in names]


def bare(result: TaskResult) -> list[dict[str, Any]]:
    """Messages without what differs from run to run."""
    return [message.model_dump(exclude={"id", "created_at"}) for message in result.messages]


def received(clients: Models) -> dict[str, list[Any]]:
    """What each model was asked."""
    return {name: [call["messages"] for call in client.create_calls] for name, client in clients.items()}


async def outcome(make: Callable[[Models], Any], scripts: dict[str, Sequence[str]], tasks: Sequence[Any]) -> Any:
    """Run a team with several tasks; return what was said in each run, why it stopped, and what the models were asked."""
    clients = models(**scripts)
    team = make(clients)
    results = [await team.run(task=task) for task in tasks]
    return [bare(result) for result in results], [result.stop_reason for result in results], received(clients)
