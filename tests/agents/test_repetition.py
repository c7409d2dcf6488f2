"""Code and words that come again and again: what the model is sent, and what ends a turn."""

import json
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, TextMessage
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import AssistantMessage, CreateResult, LLMMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import Budget, CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.code_search import SAME_AGAIN, SAME_CODE, RepeatedCode, find_code
from autogen_codeact.agents.text import REPEATING_CHARS, end_of_news
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.recording import recorded
from codeact_sandbox.types.result import Artifact, ToolCall
from tests.agents.codeact import python
from tests.agents.support import FAILS, decision, received_by, scripted

LANGUAGES = {"python", "sh", "bash"}
BOTH = pytest.mark.parametrize("kind", [CodeActAgent, CodeExecutorAgent])
PRINTS = python("print(17 * 23)")
SUM = python("print(sum(range(1, 11)))")
MARKET = "The price is that of an item.\n\n" + "The result is 7 of market cost.\n\n" * 200


# Text behind the code


@BOTH
async def test_text_behind_the_code_is_shown_and_not_sent_back(session: SandboxCodeExecutor, kind: Any) -> None:
    invented = f"{PRINTS}\n\nThis will output: `17 * 23 = 343."
    client = scripted(invented, "It is 391.")
    result = await kind("coder", session, model_client=client).run(task="Multiply.")
    sent = [each for each in received_by(client)[1] if isinstance(each, AssistantMessage)]
    assert [str(each.content).rstrip() for each in sent] == [PRINTS]
    assert result.messages[1].to_text().startswith(invented)


@pytest.mark.parametrize(
    "text",
    [
        "<execute>\nprint(1)\n\n</execute>",
        "```python\nprint(1)```\n",
        "```python\r\nprint(1)\r\n```\r\n",
        "```python\nprint(1)\n```\n\n```sql\nSELECT 1;\n```\n",
    ],
)
def test_end_of_the_code_is_found_in_each_form(text: str) -> None:
    end = find_code([f"{text}Output: 1"], LANGUAGES).end
    text = text.replace("\r\n", "\n")
    assert f"{text}Output: 1"[:end].rstrip() == text.rstrip()


# The same code again


async def test_code_that_comes_again_and_again_ends_a_turn(session: SandboxCodeExecutor) -> None:
    client = scripted(PRINTS, PRINTS, PRINTS, PRINTS)
    result = await CodeActAgent("coder", session, model_client=client).run(task="Multiply.")
    outputs = [each.result.output for each in result.messages if isinstance(each, CodeExecutionEvent)]
    assert outputs == ["391\n", "391\n"]
    assert str(received_by(client)[2][-1].content) == f"391\n\n{SAME_CODE}"
    sent_back, answer = result.messages[-2:]
    assert isinstance(sent_back, CodeGenerationEvent)
    assert isinstance(answer, TextMessage)
    assert sent_back.metadata["sent_back"] == SAME_AGAIN
    assert answer.metadata["stopped"] == "repeated_code"


async def test_code_that_fails_twice_is_not_run_a_third_time(executor: CodeExecutor) -> None:
    client = scripted(FAILS, decision(True), FAILS, decision(True), FAILS, "I can't.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=5)
    result = await agent.run(task="Go.")
    assert sum(isinstance(each, CodeExecutionEvent) for each in result.messages) == 2
    assert str(received_by(client)[3][-2].content).endswith(SAME_CODE)
    assert result.messages[-2].metadata["sent_back"] == SAME_AGAIN  # type: ignore[union-attr]
    assert result.messages[-1].to_text() == "I can't."


CALL = ToolCall(name="state", arguments={}, result="pending", duration_s=0.1, outcome="ok")
FIGURE = Artifact("a.png", 1, "image/png")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ExecutionResult(0, "pending\n", duration_s=0.1), True),
        (CodeResult(exit_code=0, output="pending\n"), True),
        (ExecutionResult(0, "pending\n", duration_s=5.0), False),
        (ExecutionResult(1, "pending\n", outcome="error", duration_s=5.0), True),
        (ExecutionResult(0, "pending\n", duration_s=0.1, tool_calls=(CALL,)), False),
        (ExecutionResult(0, "", artifacts=(FIGURE,)), False),
    ],
)
def test_code_that_waits_or_has_effects_may_come_again(result: CodeResult, told: bool) -> None:
    block, repeated = [CodeBlock(code="print(state())", language="python")], RepeatedCode()
    assert repeated.remarks(block, result) == []
    assert bool(repeated.remarks(block, result)) is told
    assert repeated.remarks(block, CodeResult(exit_code=0, output="done\n")) == []


# Endless repetition


class Rambling(ReplayChatCompletionClient):
    """Streams a text in pieces of four characters.

    `sent` counts them, and `closed` tells whether the request was cancelled.
    """

    def __init__(self, text: str) -> None:
        super().__init__(["never"])
        self.text, self.sent, self.closed = text, 0, False

    async def create_stream(  # type: ignore[override]
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        self.closed = False
        try:
            for at in range(0, len(self.text), 4):
                self.sent += 1
                yield self.text[at : at + 4]
        finally:
            self.closed = True


@BOTH
async def test_answer_that_repeats_itself_is_stopped(session: SandboxCodeExecutor, kind: Any) -> None:
    client = Rambling(MARKET)
    agent = kind("coder", session, model_client=client, model_client_stream=True)
    answer = (await agent.run(task="What do 7 of 'market' cost?")).messages[-1]
    assert isinstance(answer, TextMessage)
    assert answer.metadata["cut_off"] == "true"
    assert answer.content.count("The result is 7") == 1
    assert client.closed
    assert client.sent * 4 < 2 * (REPEATING_CHARS + 400)


async def test_code_before_a_repetition_runs_and_the_log_is_whole(session: SandboxCodeExecutor, tmp_path: Path) -> None:
    client = Rambling(f"{SUM}\n{MARKET}")
    options: Any = {"model_client_stream": True, "budget": Budget(max_steps=1)}
    agent = CodeActAgent("coder", session, model_client=client, **options)
    shown = [each async for each in recorded(agent, task="Go.", path=tmp_path / "run")]
    outputs = [each.result.output for each in shown if isinstance(each, CodeExecutionEvent)]
    assert outputs == ["55\n"]
    lines = (tmp_path / "run/events.jsonl").read_text().splitlines()
    names = [name for name in (json.loads(line)["type"] for line in lines) if name.startswith("model_call")]
    assert names == ["model_call_started", "model_call_finished"] * (len(names) // 2) != []


async def test_repetitions_of_an_unstreamed_answer_are_cut(session: SandboxCodeExecutor) -> None:
    client = scripted(MARKET, "It is 490.")
    result = await CodeActAgent("coder", session, model_client=client).run(task="Cost?")
    assert str(received_by(client)[1][-2].content).count("The result is 7") == 1
    assert result.messages[-1].to_text() == "It is 490."


ROWS = "```python\ngrid = [" + "None, " * 1000


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        *((text, False) for text in ("ab " * 300, "| a | b |\n" * 50, "=" * 7999, "0, " * 2000, ROWS)),
        ("".join(map(str, range(2000))), False),
        *((text, True) for text in ("=" * 8000, "x" * 500 + "ab" * 500, f"y{MARKET}")),
        (f"{ROWS * 2}{'None, ' * 400}", True),
    ],
)
def test_repetition_is_distinguished_from_tables_and_data(text: str, repeats: bool) -> None:
    assert (end_of_news(text) is not None) is repeats


@pytest.mark.parametrize(
    "text",
    ["'" * 10_000 + "a", "```python\n" + "`\"'" * 3_300 + "a", "9 " * 2_250_000, "1,000" * 900_000],
)
def test_no_answer_takes_long_to_look_at(text: str) -> None:
    def seconds(each: str) -> float:
        began = time.process_time()
        find_code([each], LANGUAGES)
        return time.process_time() - began

    ordinary = min(seconds("The result is 41, as printed.\n" * 150_000) for _ in range(3))
    assert min(seconds(text) for _ in range(3)) < 5 * ordinary
