"""Answers of weak models: what stays in the conversation, and how a run goes on or ends.

Texts without another origin are answers of SmolLM2-135M to small tasks; the others are recorded answers.
"""

import gzip
import json
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, TextMessage
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import AssistantMessage, CreateResult, LLMMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import Budget, CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.code_search import (
    COULD_RUN,
    SAME_AGAIN,
    SAME_CODE,
    RepeatedCode,
    find_code,
    runnable_languages,
)
from autogen_codeact.agents.text import REPEATING_CHARS, end_of_news
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.recording import recorded
from codeact_sandbox.types.result import Artifact, ToolCall
from tests.agents.support import decision, received_by, scripted
from tests.cases import case

LANGUAGES = runnable_languages(CodeActAgent.DEFAULT_SUPPORTED_LANGUAGES)
INVENTED = (
    "```python\ndef print_17_23():\n    print(17 * 23)\n\nprint_17_23()\n```\n\nThis will output: `17 * 23 = 343."
)
OWN = INVENTED.partition("\n\nThis will")[0]
SUM = "```python\ndef sum_of_numbers(n):\n    return sum(range(1, 11))\n\nprint(sum_of_numbers(10))\n```\n"
FAILS_AGAIN = (
    "```python\ndef largest_of_three_nine_four(n):\n    return max(range(n), lambda x: x > n)\n\n"
    "print(largest_of_three_nine_four(9))\n```\n"
)
MARKET = "The function price(item) returns the price of an item.\n\n" + "The result is 7 of market cost.\n\n" * 200


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# Text behind the code


async def test_what_is_invented_behind_the_code_is_shown_to_users_and_not_to_the_model(
    session: SandboxCodeExecutor,
) -> None:
    for make in (CodeActAgent, CodeExecutorAgent):
        with case(make):
            client = scripted(INVENTED, "It is 391.")
            result = await make("coder", session, model_client=client).run(task="Write Python that prints 17 * 23.")
            sent = [each.content for each in received_by(client)[1] if isinstance(each, AssistantMessage)]
            assert [text.rstrip() for text in map(str, sent)] == [OWN]
            assert result.messages[1].to_text().startswith(INVENTED)
            assert result.messages[-1].to_text() == "It is 391."


def test_recorded_outputs_in_answers_are_behind_the_code(shared_data: Path) -> None:
    answers = [answer for row in rows(shared_data / "tora/answers.jsonl.gz") for answer in row["code"]]
    for number, answer in enumerate(answers):
        kept = answer[: find_code([answer], LANGUAGES).end]
        assert (kept.rstrip()[-3:], "```output" in kept, kept.count("```")) == ("```", False, 2), number


def test_the_end_of_the_code_is_found_in_quotes_and_tags_and_with_other_line_ends() -> None:
    for text in [
        "> ```python\n> print(1)\n> ```\n",
        "<execute>\nprint(1)\n\n</execute>",
        "```python\nprint(1)```\n",
        "```python\r\nprint(1)\r\n```\r\n",
        "```python\nprint(1)\n```\n\n```sql\nSELECT 1;\n```\n",
    ]:
        with case(text):
            end = find_code([f"{text}Output: 1"], LANGUAGES).end
            assert f"{text}Output: 1".replace("\r\n", "\n")[:end].rstrip() == text.replace("\r\n", "\n").rstrip()
    assert find_code(["Output: 1"], LANGUAGES).end is None


# The same code again


async def test_code_that_comes_again_and_again_ends_a_run(session: SandboxCodeExecutor) -> None:
    again = "```python\nprint(17 * 23)\n```\n"
    client = scripted(again, again, again, again)
    result = await CodeActAgent("coder", session, model_client=client).run(task="Write Python that prints 17 * 23.")
    outputs = [each.result.output for each in result.messages if isinstance(each, CodeExecutionEvent)]
    answer = result.messages[-1]
    assert outputs == ["391\n", "391\n"]
    assert str(received_by(client)[2][-1].content) == f"391\n\n{SAME_CODE}"
    assert isinstance(result.messages[-2], CodeGenerationEvent)
    assert result.messages[-2].metadata["sent_back"] == SAME_AGAIN
    assert isinstance(answer, TextMessage)
    assert answer.metadata["stopped"] == "repeated_code"


async def test_code_that_fails_again_and_again_is_not_run_a_third_time(executor: CodeExecutor) -> None:
    client = scripted(FAILS_AGAIN, decision(True), FAILS_AGAIN, decision(True), FAILS_AGAIN, "The largest is 9.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=5)
    result = await agent.run(task="Write Python that prints the largest of 3, 9, 4.")
    assert sum(isinstance(each, CodeExecutionEvent) for each in result.messages) == 2
    assert str(received_by(client)[3][-2].content).endswith(SAME_CODE)
    assert result.messages[-2].metadata["sent_back"] == SAME_AGAIN  # type: ignore[union-attr]
    assert result.messages[-1].to_text() == "The largest is 9."


def test_code_that_waits_for_something_may_come_again() -> None:
    block = [CodeBlock(code="print(state())", language="python")]
    quick = ExecutionResult(0, "pending\n", duration_s=0.1)
    call = ToolCall(name="state", arguments={}, result="pending", duration_s=0.1, outcome="ok")
    for result, told in [
        (quick, True),
        (CodeResult(exit_code=0, output="pending\n"), True),
        (ExecutionResult(0, "pending\n", duration_s=5.0), False),
        (ExecutionResult(1, "pending\n", outcome="error", duration_s=5.0), True),
        (ExecutionResult(0, "pending\n", duration_s=0.1, tool_calls=(call,)), False),
    ]:
        with case(result):
            repeated = RepeatedCode()
            assert repeated.remarks(block, result) == []
            assert bool(repeated.remarks(block, result)) is told
            assert repeated.remarks(block, CodeResult(exit_code=0, output="done\n")) == []


# Code in other forms


async def test_code_in_no_form_that_runs_is_asked_for_again_and_is_never_a_good_answer(
    session: SandboxCodeExecutor,
) -> None:
    for text in [
        "```python\nprint(1)",
        "print(1)\n```",
        "python\nprint(1)\n```",
        "``python\nprint(1)\n``",
        "`python\nprint(1)\n`",
        "'''python\nprint(1)\n'''",
        "```python print(1)```",
        "python\n```\nprint(1)\n```",
        "```\npython\nprint(1)\n```",
        "```\nprint(1)\n```python",
        "<code>\nprint(1)\n</code>",
        "The code is <code>\nprint(1)\n</code>",
        "Sure! [PYTHON]\nprint(1)\n[/PYTHON]",
        '<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>',
        '{"name": "python", "parameters": {"code": "print(1)"}}',
        "<llm-code>\nprint(1)\n</llm-code>",
        '<code lang="python">\nprint(1)\n</code>',
        ">>> print(1)\n1",
        "To solve it:\n\nprint(sum(range(11)))\n\nThis prints 55.",
        "The code is:\n\n```\ndef sum_values(values):\n    return sum(values)\n\nprint(sum_values([45, 55]))\n```\n",
    ]:
        for make in (CodeActAgent, CodeExecutorAgent):
            with case(text, make):
                client = scripted(*[text] * 4)
                limits: dict[str, Any] = (
                    {"budget": Budget(max_steps=3)} if make is CodeActAgent else {"max_retries_on_error": 1}
                )
                result = await make("coder", session, model_client=client, **limits).run(task="Print 1.")
                answer = result.messages[-1]
                reasons = {each["reason"] for each in json.loads(answer.metadata.get("not_run", "[]"))}  # type: ignore[union-attr]
                assert not any(isinstance(each, CodeExecutionEvent) for each in result.messages)
                assert isinstance(result.messages[1], CodeGenerationEvent)
                assert reasons & COULD_RUN or reasons == {"unlabelled"} or {"cut_off", "stopped"} & {*answer.metadata}  # type: ignore[union-attr]


# Endless repetition


class Rambling(ReplayChatCompletionClient):
    """Streams a text in pieces of four characters; `sent` counts them, and `closed` tells whether the request was cancelled."""

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


async def test_an_answer_that_repeats_itself_is_stopped_and_cut_off(session: SandboxCodeExecutor) -> None:
    for make in (CodeActAgent, CodeExecutorAgent):
        with case(make):
            client = Rambling(MARKET)
            agent = make("coder", session, model_client=client, model_client_stream=True)
            answer = (await agent.run(task="What do 7 of 'market' cost?")).messages[-1]
            assert isinstance(answer, TextMessage)
            assert answer.metadata["cut_off"] == "true"
            assert answer.content.count("The result is 7") == 1
            assert client.closed
            assert client.sent * 4 < 2 * (REPEATING_CHARS + 400)


async def test_code_before_a_repetition_is_run_and_code_in_thoughts_is_not(session: SandboxCodeExecutor) -> None:
    for text, outputs in [(SUM + MARKET, ["55\n"]), (f"<think>{SUM}{MARKET}", [])]:
        with case(text[:10]):
            agent = CodeActAgent(
                "coder", session, model_client=Rambling(text), model_client_stream=True, budget=Budget(max_steps=1)
            )
            messages = (await agent.run(task="Go.")).messages
            assert [each.result.output for each in messages if isinstance(each, CodeExecutionEvent)] == outputs


async def test_a_stopped_answer_is_whole_in_the_log(session: SandboxCodeExecutor, tmp_path: Path) -> None:
    agent = CodeActAgent(
        "coder", session, model_client=Rambling(SUM + MARKET), model_client_stream=True, budget=Budget(max_steps=1)
    )
    async for _ in recorded(agent, task="Go.", path=tmp_path / "run"):
        pass
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    names = [event["type"] for event in events if event["type"].startswith("model_call")]
    assert names == ["model_call_started", "model_call_finished"] * (len(names) // 2) != []


async def test_an_answer_that_is_not_streamed_keeps_the_first_of_its_repetitions(session: SandboxCodeExecutor) -> None:
    client = scripted(MARKET, "It is 490.")
    result = await CodeActAgent("coder", session, model_client=client).run(task="What do 7 of 'market' cost?")
    assert str(received_by(client)[1][-2].content).count("The result is 7") == 1
    assert result.messages[-1].to_text() == "It is 490."


def test_one_recorded_answer_repeats_itself(shared_data: Path) -> None:
    texts = [step["assistant"] for each in rows(shared_data / "mint/sessions.jsonl.gz") for step in each["steps"]]
    texts += [answer for row in rows(shared_data / "tora/answers.jsonl.gz") for answer in row["code"]]
    texts += [each["content"] for each in rows(shared_data / "autogen-notebooks/messages.jsonl.gz")]
    found = [text for text in texts if any(end_of_news(text[:at]) for at in range(len(text), 0, -50))]
    assert len(found) == 1
    assert found[0].count("The area of the semicircle is given by") > 5
    code = "```python\ngrid = [" + "None, " * 1000
    for text in ["ab " * 300, "| a | b |\n" * 50, "".join(map(str, range(2000))), "=" * 7999, "0, " * 2000, code]:
        assert end_of_news(text) is None
    for text in ["=" * 8000, "x" * 500 + "ab" * 500, "y" + MARKET, code * 2 + "None, " * 400]:
        assert end_of_news(text) is not None


def test_no_answer_takes_long_to_look_at() -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        find_code([text], LANGUAGES)
        return time.process_time() - began

    ordinary = min(seconds("The result is 41, as printed.\n" * 150_000) for _ in range(3))
    for name, text in {
        "quotation marks": "'" * 10_000 + "a",
        "quotation marks of two kinds": "```python\n" + "`\"'" * 3_300 + "a",
        "numbers": "9 " * 2_250_000,
        "thousands": "1,000" * 900_000,
    }.items():
        with case(name):
            assert min(seconds(text) for _ in range(3)) < 5 * ordinary


def test_code_that_makes_a_figure_or_a_file_may_run_again() -> None:
    repeated, blocks = RepeatedCode(), [CodeBlock(code="env.step(); plt.show()", language="python")]
    result = ExecutionResult(exit_code=0, output="", outcome="ok", artifacts=(Artifact("a.txt", 1, "text/plain"),))
    for _ in range(3):
        assert repeated.remarks(blocks, result) == []
