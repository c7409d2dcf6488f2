"""Requests to the model stay within a budget, and within its context where its own tokenizer counts them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken, Image
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import LLMMessage, SystemMessage, UserMessage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PILImage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.config import CodeActAgentConfig
from autogen_codeact.agents.conversation import LATEST, ContextBudget, ContextTooSmallError, Conversation, size_of
from autogen_codeact.agents.decision import QUESTION
from autogen_codeact.agents.model_calls import ModelMiddleware
from autogen_codeact.agents.observation import as_message
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.result import Artifact
from tests.agents.codeact import from_agent, model, python, user
from tests.agents.support import decision, received_by, scripted
from tests.cases import case

BUDGET = 200_000
SYSTEM = SystemMessage(content="Act.")
TASK = user("Draw.")


def png() -> bytes:
    buffer = BytesIO()
    PILImage.new("RGB", (4, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def image() -> Image:
    return Image.from_pil(PILImage.new("RGB", (4, 3)))


def begins_alike(earlier: list[LLMMessage], later: list[LLMMessage]) -> bool:
    return all(old is new or old == new for old, new in zip(earlier, later, strict=False))


def steps(count: int, *, output: str = "x" * 3_000, code: str = "draw()") -> list[LLMMessage]:
    """A conversation: in each step the model draws a figure and sees it."""
    messages: list[LLMMessage] = [SYSTEM, TASK]
    for number in range(count):
        text = f"{number} {output}\nFiles made or changed: figure-{number}.png (99 bytes)."
        messages += [model(code), UserMessage(content=[text, image()], source="actor")]
    return messages


async def ignore(_: object) -> None:
    return None


async def kept_nowhere(text: str) -> str | None:
    return None


def total(messages: list[LLMMessage]) -> int:
    return sum(map(size_of, messages))


async def test_two_hundred_steps_with_figures_fit(tmp_path: Path) -> None:
    client, context = scripted(*["draw()"] * 200, "Done.", vision=True), UnboundedChatCompletionContext()
    budget = ContextBudget(BUDGET, "actor", kept_nowhere)
    conversation = Conversation(context, client, "actor", stream=False, budget=budget)
    conversation.system_message = "Act."
    await conversation.add_messages([TextMessage(content="Draw.", source="user")])
    for number in range(200):
        await conversation.generate(CancellationToken(), ignore)
        name = f"figure-{number}.png"
        (tmp_path / name).write_bytes(png())
        figure = Artifact(name, 99, "image/png", tmp_path / name)
        result = ExecutionResult(0, f"{number} " * 1_000, artifacts=(figure,))
        await context.add_message(await as_message(result, "actor", vision=True, session=True))
    await conversation.generate(CancellationToken(), ignore)
    requests = received_by(client)
    assert len(requests) == 201
    assert max(map(total, requests)) <= BUDGET
    last = requests[-1]
    # What has to stay whole: system message, task and latest steps; nothing of the context is lost.
    assert last[:2] == [SYSTEM, TASK]
    everything = await context.get_messages()
    assert len(everything) == 402
    assert last[-LATEST:] == everything[:-1][-LATEST:]
    # Requests begin alike, except when older messages are shortened, so that the caches of providers work.
    alike = [begins_alike(earlier, later) for earlier, later in pairwise(requests)]
    assert 0 < alike.count(False) < 20


async def test_shortened_output_can_be_read_again(session: SandboxCodeExecutor) -> None:
    data = base64.b64encode(png()).decode()
    draw = [
        python(
            f"import base64\n_ = open('figure-{number}.png', 'wb').write(base64.b64decode('{data}'))\nprint('{number} ' * 1000)"
        )
        for number in range(9)
    ]
    client = scripted(*draw, "Done.", vision=True)
    agent = CodeActAgent("actor", session, model_client=client, context_budget=50_000)
    await agent.run(task="Draw.")
    shortened = next(str(message.content) for message in received_by(client)[-1] if "0 0 0" in str(message.content))
    file = "/workspace/.codeact/actor-step-1.txt"
    assert f"characters left out to save space; all of it is in the file {file} …]" in shortened
    assert shortened.endswith("\n[1 image left out to save space: figure-0.png]")
    whole = (await session.sandbox.read(file.removeprefix("/workspace/"))).decode()
    assert whole.startswith("0 " * 1000)
    assert "figure-0.png" in await session.list_files()


async def test_oldest_outputs_are_shortened_first() -> None:
    messages = steps(12)
    limit = total(messages) - 5_000
    fitted = await ContextBudget(limit, "actor", kept_nowhere).fit(messages, scripted())
    assert total(fitted) <= limit
    assert fitted[:3] == messages[:3]
    assert fitted[3] == from_agent(
        f"0 {'x' * 298}\n[… 2450 characters left out to save space …]\n{'x' * 252}\n"
        "Files made or changed: figure-0.png (99 bytes).\n[1 image left out to save space: figure-0.png]"
    )
    changed = [at for at, (old, new) in enumerate(zip(messages, fitted, strict=True)) if old is not new]
    assert changed == [3, 5, 7, 9, 11, 13]
    assert isinstance(messages[3].content, list)  # the conversation itself is not changed


async def test_long_messages_of_the_model_are_shortened_after_outputs() -> None:
    messages = steps(20, output="", code="x = 1\n" * 1_000)
    fitted = await ContextBudget(70_000, "actor", kept_nowhere).fit(messages, scripted())
    assert total(fitted) <= 70_000
    assert "characters left out" in str(fitted[2].content)
    assert len(fitted) == len(messages)


async def test_earliest_messages_are_left_out_if_nothing_else_helps() -> None:
    messages = steps(1_000, output="short", code="draw()")
    fitted = await ContextBudget(40_000, "actor", kept_nowhere).fit(messages, scripted())
    assert total(fitted) <= 40_000
    assert fitted[:2] == [SYSTEM, TASK]
    count = len(messages) - len(fitted) + 1
    assert fitted[2] == from_agent(f"[{count} earlier messages of this conversation are left out here to save space.]")
    assert fitted[-LATEST:] == messages[-LATEST:]


async def test_latest_steps_stay_whole_even_over_the_budget() -> None:
    messages = steps(3, output="x" * 30_000)
    assert await ContextBudget(20_000, "actor", kept_nowhere).fit(messages, scripted()) == messages


async def test_file_of_a_long_output_is_named_and_no_second_one_made() -> None:
    kept: list[str] = []

    async def keep(text: str) -> str | None:
        kept.append(text)
        return f"/workspace/.codeact/{len(kept)}.txt"

    gap = "[… 9 characters left out here; all of it is in the file /workspace/.codeact/actor-output-1.txt …]"
    messages = steps(12)
    messages[3] = from_agent(f"{'y' * 2_000}\n{gap}\n{'y' * 2_000}")
    budget = ContextBudget(total(messages) - 5_000, "actor", keep)
    first = await budget.fit(messages, scripted())
    assert await budget.fit(messages, scripted()) == first
    assert "all of it is in the file /workspace/.codeact/actor-output-1.txt" in str(first[3].content)
    assert "all of it is in the file /workspace/.codeact/1.txt" in str(first[5].content)
    assert len(kept) == 6


def test_budget_that_is_too_small_is_refused(executor: Any) -> None:
    for budget in [0, -1, 19_999]:
        with case(budget), pytest.raises(ValueError, match=r"^context_budget must be at least 20,000 characters, not "):
            CodeExecutorAgent("coder", executor, model_client=scripted(), context_budget=budget)


def test_budget_is_in_the_configuration(bubblewrap: None) -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    agent = CodeActAgent("actor", executor, model_client=scripted(), context_budget=50_000)
    config = agent.dump_component().config
    assert CodeActAgent.load_component(agent.dump_component())._context_budget == 50_000
    del config["context_budget"]  # as in configurations of earlier versions
    assert CodeActAgentConfig.model_validate(config).context_budget == 400_000


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
