"""One turn of the agent: which events there are, and exactly what the model was told."""

import json
import subprocess
import sys
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, TextMessage, ThoughtEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import AssistantMessage, CreateResult, UserMessage

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CODE_OF_OTHERS, CUT_OFF, CUT_OFF_BY_OTHERS
from tests.agents.support import (
    FAILED_WORDS,
    FAILS,
    FAILS_CODE,
    SYSTEM,
    WORKS,
    WORKS_CODE,
    decision,
    model_answer,
    plain,
    received_by,
    scripted,
    token_usage,
    without_ids,
)

TASK = TextMessage(content="Print 42.", source="user")
TOLD_TASK = UserMessage(content="Print 42.", source="user")
OK = {"outcome": "ok", "exit_code": "0"}
FAILED = {"outcome": "error", "exit_code": "3"}


def from_agent(words: str) -> UserMessage:
    return UserMessage(content=words, source="coder")


def model(words: str) -> AssistantMessage:
    return AssistantMessage(content=words, source="coder")


def generation_event(text: str, *code: str, attempt: int = 0, cost: int = 1, **metadata: str) -> dict[str, Any]:
    blocks = [CodeBlock(language="python", code=block) for block in code]
    event = CodeGenerationEvent(
        retry_attempt=attempt,
        content=text,
        code_blocks=blocks,
        source="coder",
        models_usage=token_usage(cost),
        metadata=metadata,
    )
    return plain(event)


def execution_event(exit_code: int, output: str, metadata: dict[str, str], attempt: int = 0) -> dict[str, Any]:
    result = CodeResult(exit_code=exit_code, output=output)
    return plain(CodeExecutionEvent(retry_attempt=attempt, result=result, source="coder", metadata=metadata))


def answer_message(text: str, cost: int = 1, **metadata: str) -> dict[str, Any]:
    return plain(TextMessage(content=text, source="coder", models_usage=token_usage(cost), metadata=metadata))


async def test_the_model_may_decide_against_another_attempt(executor: CodeExecutor) -> None:
    client = scripted(FAILS, model_answer(decision(False, "no use"), cost=2), model_answer("I could not.", cost=3))
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=3)

    result = await agent.run(task=[TASK])

    assert without_ids(result.messages[1:]) == [
        generation_event(FAILS, FAILS_CODE),
        execution_event(3, "boom\n", FAILED),
        generation_event("Not trying again: no use", cost=2, retry="false"),
        answer_message("I could not.", cost=3),
    ]
    assert received_by(client)[2] == [SYSTEM, TOLD_TASK, model(FAILS), from_agent(FAILED_WORDS)]


async def test_nobody_is_asked_when_no_attempt_is_left(executor: CodeExecutor) -> None:
    client = scripted(FAILS, decision(True), FAILS, "I could not.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=1)

    result = await agent.run(task=[TASK])

    assert [type(message) for message in result.messages] == [
        TextMessage,
        CodeGenerationEvent,
        CodeExecutionEvent,
        CodeGenerationEvent,
        CodeGenerationEvent,
        CodeExecutionEvent,
        TextMessage,
    ]
    assert received_by(client)[3][-2:] == [model(FAILS), from_agent(FAILED_WORDS)]


async def test_thoughts_are_events_and_stay_in_the_context(executor: CodeExecutor) -> None:
    client = scripted(model_answer(WORKS, thought="easy"), model_answer("42.", thought="done"))
    agent = CodeExecutorAgent("coder", executor, model_client=client)

    result = await agent.run(task=[TASK])

    assert without_ids(result.messages[1:]) == [
        plain(ThoughtEvent(content="easy", source="coder")),
        generation_event(WORKS, WORKS_CODE),
        execution_event(0, "42\n", OK),
        plain(ThoughtEvent(content="done", source="coder")),
        answer_message("42."),
    ]
    assert received_by(client)[1][2] == AssistantMessage(content=WORKS, thought="easy", source="coder")


async def test_a_cut_off_answer_is_never_run_and_asked_for_again(executor: CodeExecutor) -> None:
    cut = "```python\nprint(1)\n```\nand\n```python\nopen('ran', 'w')\nprint("
    client = scripted(model_answer(cut, cost=2), WORKS, "It is 42.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=1)

    result = await agent.run(task=[TASK])

    assert without_ids(result.messages[1:]) == [
        generation_event(cut, cost=2, cut_off="true"),
        generation_event(WORKS, WORKS_CODE, attempt=1),
        execution_event(0, "42\n", OK, attempt=1),
        answer_message("It is 42."),
    ]
    assert received_by(client)[1] == [SYSTEM, TOLD_TASK, model(cut), from_agent(CUT_OFF)]


async def test_a_cut_off_answer_with_no_attempt_left_is_the_answer(executor: CodeExecutor) -> None:
    cut = "```python\nprint("
    client = scripted(model_answer(cut, cost=2), "Fine.")
    agent = CodeExecutorAgent("coder", executor, model_client=client)

    result = await agent.run(task=[TASK])

    not_run = '[{"language": "python", "reason": "truncated"}]'
    expected = answer_message(cut, cost=2, not_run=not_run, cut_off="true")
    assert without_ids(result.messages[1:]) == [expected]
    await agent.run(task=[TASK])
    assert received_by(client)[1] == [SYSTEM, TOLD_TASK, model(cut), from_agent(CUT_OFF), TOLD_TASK]


@pytest.mark.parametrize(
    ("label", "not_run"),
    [
        ("output", []),
        ("text", []),
        ("", [{"language": "", "reason": "unlabelled"}]),
        ("javascript", [{"language": "javascript", "reason": "language"}]),
        ("bash", [{"language": "bash", "reason": "language"}]),
    ],
)
async def test_code_in_unsupported_languages_is_not_run(executor: CodeExecutor, label: str, not_run: Any) -> None:
    text = f"It prints\n```{label}\nprint(42)\n```\n"
    agent = CodeExecutorAgent("coder", executor, model_client=scripted(text))

    result = await agent.run(task=[TASK])

    metadata = {"not_run": json.dumps(not_run)} if not_run else {}
    assert without_ids(result.messages[1:]) == [answer_message(text, **metadata)]


async def test_output_labelled_as_a_language_is_not_run(executor: CodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", executor, supported_languages=["output", "text", "python"])

    result = await agent.run(task="```output\nrm -rf x\n```\n")

    assert result.messages[-1].to_text() == CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE


async def test_long_output_is_shortened_for_the_model_and_complete_for_the_caller(executor: CodeExecutor) -> None:
    client = scripted("```python\nprint('a' * 30_000)\n```", "Many.")
    agent = CodeExecutorAgent("coder", executor, model_client=client)

    result = await agent.run(task=[TASK])

    event = result.messages[2]
    assert isinstance(event, CodeExecutionEvent)
    assert event.result.output == "a" * 30_000 + "\n"
    assert received_by(client)[1][-1] == from_agent(
        "a" * 10_000 + "\n[… 10001 characters left out here …]\n" + "a" * 9_999 + "\n"
    )


async def test_no_task_at_all_is_an_error_and_the_agent_goes_on(executor: CodeExecutor) -> None:
    client = scripted("Done.")
    agent = CodeExecutorAgent("coder", executor, model_client=client)

    for nothing in ("", " \n", None):
        with pytest.raises(ValueError, match="There is no task"):
            await agent.run(task=nothing)

    await agent.run(task=[TASK])
    assert received_by(client) == [[SYSTEM, TOLD_TASK]]


def function_call(name: str) -> CreateResult:
    calls = [FunctionCall(id="1", name=name, arguments="{}")]
    return CreateResult(finish_reason="function_calls", content=calls, usage=token_usage(2), cached=False)


async def test_model_is_told_once_that_it_can_call_no_functions(executor: CodeExecutor) -> None:
    client = scripted(function_call("python"), "Done.")
    agent = CodeExecutorAgent("coder", executor, model_client=client)

    result = await agent.run(task=[TASK])

    assert [message.to_text() for message in result.messages[1:]] == ["Done."]
    assert result.messages[-1].models_usage == token_usage(3)
    told = (
        "You called functions (python), but none are offered here, so nothing ran. Answer in text; write code that should run in "
        "a fenced block."
    )
    assert received_by(client) == [[SYSTEM, TOLD_TASK], [SYSTEM, TOLD_TASK, from_agent(told)]]


async def test_second_function_call_instead_of_text_is_an_error(executor: CodeExecutor) -> None:
    client = scripted(function_call("rm"), function_call("rm"), "Done.")
    agent = CodeExecutorAgent("coder", executor, model_client=client)

    with pytest.raises(RuntimeError, match=r"called functions \(rm\)"):
        await agent.run(task=[TASK])

    await agent.run(task=[TASK])
    assert received_by(client)[2] == [SYSTEM, TOLD_TASK]


# Without a model


async def test_agent_without_a_model_runs_the_code_of_others(executor: CodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", executor)

    result = await agent.run(task=[TextMessage(content=WORKS + "```sh\necho done\n```", source="user")])

    assert without_ids(result.messages[1:]) == [plain(TextMessage(content="42\ndone\n", source="runner", metadata=OK))]


async def test_only_code_from_the_named_sources_is_run(executor: CodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", executor, sources=["coder"])
    theirs = TextMessage(content="```python\nprint('user')\n```", source="user")
    coders = TextMessage(content="```python\nprint('coder')\n```", source="coder")

    response = await agent.on_messages([theirs, coders], CancellationToken())
    assert response.chat_message.to_text() == "coder\n"

    response = await agent.on_messages([theirs], CancellationToken())
    assert response.chat_message.to_text() == CODE_OF_OTHERS.format(sources="coder")

    nobodys = TextMessage(content="There you are.", source="user")
    response = await agent.on_messages([nobodys], CancellationToken())
    assert response.chat_message.to_text() == CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE


async def test_a_block_of_others_that_is_cut_off_is_not_run(executor: CodeExecutor) -> None:
    result = await CodeExecutorAgent("runner", executor).run(task=f"{WORKS}\n```python\nprint(")

    assert result.messages[-1].to_text() == CUT_OFF_BY_OTHERS


@pytest.mark.parametrize("task", ["", "no code here", "```\n1 | 2\n```"])
async def test_missing_code_is_reported_with_autogens_message(executor: CodeExecutor, task: str) -> None:
    result = await CodeExecutorAgent("runner", executor).run(task=task)

    expected = TextMessage(content=CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE, source="runner")
    assert without_ids(result.messages[1:]) == [plain(expected)]


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, autogen_codeact.agents as a; print('autogen_core' in sys.modules, 'CodeExecutorAgent' in dir(a))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
