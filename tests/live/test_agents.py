"""Agents and teams with a live model: what it says varies, so that the tests look at events, requests and tokens."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage
from pydantic import BaseModel

from autogen_codeact.agents import Budget, CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.codeact import python
from tests.live.conftest import client_of
from tests.live.server import ModelServer

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),  # of AutoGen's client, for a parsed answer
]

SUM = "Write Python code that prints the sum of the numbers from 1 to 10."


class Seen(ModelMiddleware):
    """Keeps requests and answers; the first answers are given, the others are the model's own."""

    def __init__(self, client: ChatCompletionClient, *given: str) -> None:
        super().__init__(client)
        self.given = list(given)
        self.requests: list[Sequence[LLMMessage]] = []
        self.results: list[CreateResult] = []

    async def handle(self, call: ModelCall) -> Items:
        if self.given:
            usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
            yield CreateResult(finish_reason="stop", content=self.given.pop(0), usage=usage, cached=False)
            return
        async with aclosing(call.items()) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    self.requests.append(call.messages)
                    self.results.append(item)
                yield item


def check_run(result: TaskResult, seen: Seen) -> None:
    """Check that a run has ended with an answer, that its events are in pairs, and that all tokens are counted."""
    task, *events, answer = result.messages
    assert isinstance(task, TextMessage)
    assert isinstance(answer, TextMessage)
    generated = [event for event in events if isinstance(event, CodeGenerationEvent)]
    ran = [event for event in generated if event.code_blocks]
    assert len(ran) == sum(isinstance(event, CodeExecutionEvent) for event in events)
    assert len(generated) + sum(isinstance(event, CodeExecutionEvent) for event in events) == len(events)
    usages = [each.models_usage for each in (*generated, answer) if each.models_usage is not None]
    assert sum(usage.completion_tokens for usage in usages) == sum(
        result.usage.completion_tokens for result in seen.results
    )


async def test_the_agent_that_acts_in_code_runs_to_its_end(
    session: SandboxCodeExecutor, live: ChatCompletionClient
) -> None:
    seen = Seen(live)
    agent = CodeActAgent("actor", session, model_client=seen, budget=Budget(max_steps=2))
    check_run(await agent.run(task=SUM), seen)


async def test_the_code_executor_agent_runs_to_its_end(
    session: SandboxCodeExecutor, live: ChatCompletionClient
) -> None:
    seen = Seen(live)
    check_run(await CodeExecutorAgent("coder", session, model_client=seen).run(task=SUM), seen)


async def test_a_round_robin_team_runs_to_its_end(session: SandboxCodeExecutor, live: ChatCompletionClient) -> None:
    coder = CodeExecutorAgent("coder", session, model_client=live)
    team = RoundRobinGroupChat([coder, AssistantAgent("critic", live)], max_turns=2)
    result = await team.run(task=SUM)
    answers = [message for message in result.messages if isinstance(message, TextMessage)]
    assert [message.source for message in answers] == ["user", "coder", "critic"]
    assert all(message.content for message in answers)


async def test_an_answer_that_is_cancelled_leaves_the_conversation_as_before(
    session: SandboxCodeExecutor, server: ModelServer
) -> None:
    token = CancellationToken()
    seen = Seen(client_of(server, max_tokens=1000), "It was dry.")
    agent = CodeActAgent("actor", session, model_client=seen, model_client_stream=True)
    await agent.run(task="How was the weather?")
    before, pieces = await agent.save_state(), 0

    async def tell() -> None:
        nonlocal pieces
        async for event in agent.run_stream(task="Tell a very long story about a river.", cancellation_token=token):
            pieces += isinstance(event, ModelClientStreamingChunkEvent)
            if pieces == 5:
                token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await tell()
    assert await agent.save_state() == before
    seen.given = ["Fine."]
    assert (await agent.run(task="And now?")).messages[-1].to_text() == "Fine."


async def test_a_failing_block_gets_a_structured_decision(
    session: SandboxCodeExecutor, live: ChatCompletionClient
) -> None:
    seen = Seen(live, python("print(undefined)"))
    agent = CodeExecutorAgent("coder", session, model_client=seen, max_retries_on_error=1)
    result = await agent.run(task=SUM)
    (decision,) = [m for m in result.messages if isinstance(m, CodeGenerationEvent) and "retry" in m.metadata]
    assert decision.models_usage is not None
    assert "did not say whether to repair" not in decision.content
    assert isinstance(result.messages[-1], TextMessage)


class Sum(BaseModel):
    total: int


async def test_an_answer_has_the_requested_type_or_says_why_not(
    session: SandboxCodeExecutor, live: ChatCompletionClient
) -> None:
    seen = Seen(live, python("print(sum(range(11)))"))
    agent = CodeActAgent("coder", session, model_client=seen, output_content_type=Sum)
    result = await agent.run(task=SUM)
    answer = result.messages[-1]
    # So small a model may send its code again and again instead, also when it is asked to close.
    if isinstance(answer, StructuredMessage):
        assert isinstance(answer.content, Sum)
    else:
        assert (answer.metadata["stopped"], answer.metadata["misfit"]) == ("repeated_code", "it holds no JSON")
