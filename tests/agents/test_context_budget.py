"""Requests to the model stay within a budget."""

from __future__ import annotations

import base64
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken, Image
from autogen_core.model_context import BufferedChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import LLMMessage, SystemMessage, UserMessage
from PIL import Image as PILImage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.conversation import LATEST, ContextBudget, Conversation, size_of
from autogen_codeact.agents.observation import as_message
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.result import Artifact
from tests.agents.codeact import from_agent, model, python, user
from tests.agents.support import received_by, scripted

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
    shortened = str(received_by(client)[-1][3].content)
    file = "/workspace/.codeact/actor-step-1.txt"
    assert shortened.endswith(f" characters and 1 image left out to save space; the text is in the file {file}]")
    whole = (await session.sandbox.read(file.removeprefix("/workspace/"))).decode()
    assert whole.startswith("0 " * 1000)
    assert "figure-0.png" in await session.list_files()


async def test_oldest_outputs_are_shortened_first() -> None:
    messages = steps(12)
    limit = total(messages) - 5_000
    fitted = await ContextBudget(limit, "actor", kept_nowhere).fit(messages)
    assert total(fitted) <= limit
    assert fitted[:3] == messages[:3]
    assert fitted[3] == from_agent("[3,050 characters and 1 image left out to save space]")
    changed = [at for at, (old, new) in enumerate(zip(messages, fitted, strict=True)) if old is not new]
    assert changed == [3, 5, 7, 9, 11, 13]
    assert isinstance(messages[3].content, list)  # the conversation itself is not changed


async def test_earliest_messages_are_left_out_if_nothing_else_helps() -> None:
    messages = steps(1_000, output="short", code="draw()")
    fitted = await ContextBudget(40_000, "actor", kept_nowhere).fit(messages)
    assert total(fitted) <= 40_000
    assert fitted[:2] == [SYSTEM, TASK]
    count = len(messages) - len(fitted) + 1
    assert fitted[2] == from_agent(f"[{count} earlier messages of this conversation are left out here to save space.]")
    assert fitted[-LATEST:] == messages[-LATEST:]


async def test_latest_steps_stay_whole_even_over_the_budget() -> None:
    messages = steps(3, output="x" * 30_000)
    assert await ContextBudget(20_000, "actor", kept_nowhere).fit(messages) == messages


async def test_file_of_a_long_output_is_named_and_no_second_one_made() -> None:
    kept: list[str] = []

    async def keep(text: str) -> str | None:
        kept.append(text)
        return f"/workspace/.codeact/{len(kept)}.txt"

    gap = "[… 9 characters left out here; all of it is in the file /workspace/.codeact/actor-output-1.txt …]"
    messages = steps(12)
    messages[3] = from_agent(f"{'y' * 2_000}\n{gap}\n{'y' * 2_000}")
    budget = ContextBudget(total(messages) - 5_000, "actor", keep)
    first = await budget.fit(messages)
    assert await budget.fit(messages) == first
    assert "the text is in the file /workspace/.codeact/actor-output-1.txt" in str(first[3].content)
    assert "the text is in the file /workspace/.codeact/1.txt" in str(first[5].content)
    assert len(kept) == 5


@pytest.mark.parametrize("budget", [0, -1, 19_999])
def test_budget_that_is_too_small_is_refused(executor: Any, budget: Any) -> None:
    with pytest.raises(ValueError, match=r"^context_budget must be at least 20,000 characters, not "):
        CodeExecutorAgent("coder", executor, model_client=scripted(), context_budget=budget)


async def test_autogens_own_contexts_work(session: SandboxCodeExecutor) -> None:
    client = scripted(*[python(f"print({number})") for number in range(6)], "Done.")
    agent = CodeActAgent("actor", session, model_client=client, model_context=BufferedChatCompletionContext(4))
    await agent.run(task="Count.")
    last = received_by(client)[-1]
    assert isinstance(last[0], SystemMessage)
    assert [str(message.content) for message in last[1:]] == [python("print(4)"), "4\n", python("print(5)"), "5\n"]
