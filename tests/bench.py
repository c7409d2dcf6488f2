"""The agents and teams that the tests of bad input use, and the good run after each bad input."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_core.code_executor import CodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient

from autogen_codeact.teams import Team, coder_executor_team
from tests.openai_server import OpenAIServer, Reply
from tests.wire import PlainAgent, fenced, received_messages, texts_of

ALONE, IN_A_TEAM, PAIR = "agent", "agent in a team", "coder and executor"
WITH_MODEL = (ALONE, IN_A_TEAM)
EVERYBODY = (ALONE, IN_A_TEAM, PAIR)


class Bench:
    """An agent with a model, alone or in our team, or a team of a coder and an executor."""

    def __init__(
        self,
        kind: str,
        server: OpenAIServer,
        executor: CodeExecutor,
        *,
        stream: bool = False,
        client: OpenAIChatCompletionClient | None = None,
    ) -> None:
        client = client or server.client()
        self.server = server
        self.agent = PlainAgent(
            "coder", executor, model_client=client, model_client_stream=stream, max_retries_on_error=1
        )
        self.whom: Any = self.agent
        if kind == IN_A_TEAM:
            self.whom = Team([self.agent], max_turns=1)
        if kind == PAIR:
            self.whom = coder_executor_team(client, executor, model_client_stream=stream)
        self.runner = "executor" if kind == PAIR else "coder"

    async def run(self, *answers: Reply | str, task: str = "Print 42.") -> TaskResult:
        """Run a task with these answers; unused ones are dropped."""
        self.server.script[:] = [answer if isinstance(answer, Reply) else Reply(answer) for answer in answers]
        self.server.requests.clear()
        try:
            result: TaskResult = await self.whom.run(task=task)
        finally:
            self.left = len(self.server.script)
            self.server.script.clear()
        return result

    def last_message_to_model(self) -> tuple[str, str]:
        """Return role and text of the last message that the model received."""
        last = received_messages(self.server)[-1][-1]
        return last["name"], last["content"]

    async def works(self) -> None:
        """Assert that a complete run works."""
        result = await self.run(fenced("print(6 * 7)\n"), "It is 42. TERMINATE")
        assert self.left == 0
        assert self.last_message_to_model() == (self.runner, "42\n")
        assert texts_of(result.messages)[-1] == ("coder", "It is 42. TERMINATE")


@asynccontextmanager
async def working(kind: str, executor: CodeExecutor, *, stream: bool = False) -> AsyncIterator[Bench]:
    """A bench with a server of its own; a complete run must work after what the test has done."""
    async with OpenAIServer([]) as server:
        bench = Bench(kind, server, executor, stream=stream)
        yield bench
        await bench.works()
