"""Requests stay within the model's context where its own tokenizer counts them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from autogen_core.models import LLMMessage, SystemMessage, UserMessage
from hypothesis import given
from hypothesis import strategies as st

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.conversation import ContextBudget, ContextTooSmallError
from autogen_codeact.agents.decision import QUESTION
from autogen_codeact.agents.model_calls import ModelMiddleware
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.codeact import from_agent, model, python, user
from tests.agents.support import decision, received_by, scripted

SYSTEM = SystemMessage(content="Act.")
TASK = user("Draw.")


def tokens_of(messages: Sequence[LLMMessage]) -> int:
    """Words: some are long and some short, as tokens are; a message has 5 more."""
    return sum(len(str(message.content).split()) + 5 for message in messages)


class Counting(ModelMiddleware):
    """A model with a tokenizer and a context."""

    def __init__(self, context: int, *answers: str) -> None:
        super().__init__(scripted(*answers))
        self.context = context

    async def excess_tokens(self, messages: Sequence[LLMMessage]) -> int:
        return tokens_of(messages) - self.context


class Middleware(ModelMiddleware):
    """Is between an agent and its model."""


async def kept_in_a_file(text: str) -> str | None:
    return "/workspace/.codeact/1.txt"


def budget() -> ContextBudget:
    return ContextBudget(None, "actor", kept_in_a_file)


async def test_a_conversation_that_fits_is_sent_as_it_is() -> None:
    messages = [SYSTEM, TASK, model("draw()"), from_agent("word " * 500)]
    assert await budget().fit(messages, Middleware(Counting(tokens_of(messages)))) == messages


async def test_older_outputs_are_shortened_first_and_the_newest_stay_whole() -> None:
    steps = [step for number in range(20) for step in (model(f"draw({number})"), from_agent(f"{number} " * 500))]
    messages = [SYSTEM, TASK, *steps]
    client = Middleware(Counting(4_000))
    fitted = await budget().fit(messages, client)
    assert tokens_of(fitted) <= 4_000
    assert fitted[:2] == [SYSTEM, TASK]
    assert fitted[-8:] == messages[-8:]
    assert "all of it is in the file /workspace/.codeact/1.txt …]" in str(fitted)


async def test_the_latest_output_is_shortened_if_it_alone_is_too_long() -> None:
    messages = [SYSTEM, TASK, model("draw()"), from_agent("first " + "word " * 5_000 + "last")]
    fitted = await budget().fit(messages, Counting(400))
    assert tokens_of(fitted) <= 400
    assert fitted[:3] == messages[:3]
    shown = str(fitted[3].content)
    assert (shown.startswith("first word"), shown.endswith("word last")) == (True, True)
    assert "all of it is in the file /workspace/.codeact/1.txt …]" in shown


async def test_a_question_at_the_end_stays_whole_and_has_its_room() -> None:
    question = UserMessage(content="why " * 100, source="actor")
    messages = [SYSTEM, TASK, model("draw()"), from_agent("word " * 1_000)]
    fitted = await budget().fit(messages, Counting(400), question=[question])
    assert tokens_of(fitted) <= 400
    assert fitted[-1] == question


async def test_a_task_that_does_not_fit_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ContextTooSmallError, match=r"leave 310 tokens too few .* Give the model a larger context \("):
        await budget().fit([SYSTEM, user("word " * 1_000), model("draw()")], Counting(707))


async def test_a_request_begins_as_the_one_before_until_the_context_is_full_again() -> None:
    messages: list[LLMMessage] = [SYSTEM, TASK]
    sent, client, fitting = [messages], Counting(3_000), budget()
    for number in range(60):
        messages = [*messages, model(f"draw({number})"), from_agent(f"{number} " * 200)]
        sent.append(await fitting.fit(messages, client))
        assert tokens_of(sent[-1]) <= client.context
    alike = sum(new[: len(old)] == old for old, new in pairwise(sent))
    assert alike > 40


@given(
    st.lists(st.tuples(st.sampled_from("uma"), st.sampled_from(["word ", "w ", "longer-word "]), st.integers(1, 900))),
    st.integers(60, 3_000),
)
async def test_no_request_is_too_long(turns: list[tuple[str, str, int]], context: int) -> None:
    make = {"u": user, "m": model, "a": from_agent}
    messages: list[LLMMessage] = [SYSTEM, TASK, *(make[kind](word * count) for kind, word, count in turns)]
    task = next(each for each in reversed(messages) if isinstance(each, UserMessage) and each.source == "user")
    try:
        fitted = await budget().fit(messages, Counting(context))
    except ContextTooSmallError:
        # With the note, and the latest message in short.
        assert tokens_of([SYSTEM, task]) + 350 > context or tokens_of(messages[-1:]) > context // 2
    else:
        assert tokens_of(fitted) <= context
        assert [message for message in fitted if message in (SYSTEM, task)][:1] == [SYSTEM]
        assert task in fitted


async def test_an_agent_keeps_to_the_context_of_its_model(session: SandboxCodeExecutor) -> None:
    client = Counting(900, *[python("print('word ' * 700)")] * 3, "Done.")
    await CodeActAgent("actor", session, model_client=Middleware(client)).run(task="Draw.")
    requests = received_by(client.client)
    assert max(map(tokens_of, requests)) <= client.context
    assert "characters left out to save space; all of it is in the file" in str(requests[-1])


async def test_so_do_retry_decisions(session: SandboxCodeExecutor) -> None:
    failing = [python("print('word ' * 700)\n1 / 0"), decision(True)]
    client = Counting(900, *failing * 3, "Done.")
    agent = CodeExecutorAgent("coder", session, model_client=Middleware(client), max_retries_on_error=3)
    await agent.run(task="Draw.")
    requests = received_by(client.client)
    assert len(requests) == 7
    assert max(map(tokens_of, requests)) <= client.context
    assert str(requests[1][-1].content) == QUESTION
