"""The agent among AutoGen's own: in its round robin, beside its assistant, through its JSON; and with images."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import MultiModalMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, Image
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import UserMessage
from PIL import Image as PILImage

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.images import EncodedImage
from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.types.result import Artifact
from tests.agents.support import FAILED_WORDS, FAILS, WORKS, decision, received_by, scripted, without_ids

pytestmark = pytest.mark.filterwarnings(
    # AutoGen's local executor warns that it is no sandbox; the code here is ours.
    "ignore:Using LocalCommandLineCodeExecutor:UserWarning"
)


def pair(executor: CodeExecutor) -> RoundRobinGroupChat:
    coder = AssistantAgent("coder", scripted(FAILS, WORKS, "TERMINATE"), system_message="Write code.")
    runner = CodeExecutorAgent("runner", executor, sources=["coder"])
    return RoundRobinGroupChat(
        [coder, runner], termination_condition=TextMentionTermination("TERMINATE", sources=["coder"])
    )


def texts_of(result: TaskResult) -> list[tuple[str, str]]:
    return [(message.source, message.to_text()) for message in result.messages]


CONVERSATION = [
    ("user", "Print 42."),
    ("coder", FAILS),
    ("runner", FAILED_WORDS),
    ("coder", WORKS),
    ("runner", "42\n"),
    ("coder", "TERMINATE"),
]


async def test_a_coder_and_a_runner_take_turns(executor: CodeExecutor) -> None:
    team = pair(executor)

    assert texts_of(await team.run(task="Print 42.")) == CONVERSATION

    coder = team._participants[0]
    assert isinstance(coder, AssistantAgent)
    heard = received_by(coder._model_client)[2]  # type: ignore[arg-type]
    assert heard[2:][0].content == FAILS
    assert heard[3] == UserMessage(content=FAILED_WORDS, source="runner")
    assert heard[5] == UserMessage(content="42\n", source="runner")


async def test_the_events_of_an_agent_with_a_model_pass_through_a_team(executor: CodeExecutor) -> None:
    client = scripted(FAILS, decision(True), WORKS, "It is 42.")
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=1)
    team = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))

    alone = CodeExecutorAgent(
        "coder", executor, model_client=scripted(FAILS, decision(True), WORKS, "It is 42."), max_retries_on_error=1
    )

    in_team = await team.run(task="Print 42.")
    assert without_ids(in_team.messages) == without_ids((await alone.run(task="Print 42.")).messages)


async def test_a_teams_state_holds_the_agents_conversation(executor: CodeExecutor) -> None:
    def team(*answers: str) -> tuple[RoundRobinGroupChat, Any]:
        client = scripted(*answers)
        agent = CodeExecutorAgent("coder", executor, model_client=client)
        return RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2)), client

    first, client = team("one")
    await first.run(task="first")
    state = json.loads(json.dumps(await first.save_state()))

    second, client = team("two")
    await second.load_state(state)
    await second.run(task="second")

    assert [message.content for message in received_by(client)[0][1:]] == ["first", "one", "second"]


class Plotter(CodeExecutor):
    """Stands for a sandbox whose code makes a plot; the image and its file are real."""

    def __init__(self, path: Path) -> None:
        PILImage.new("RGB", (4, 3), "red").save(path)
        self.path = path

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> ExecutionResult:
        plot = Artifact("plot.png", self.path.stat().st_size, "image/png", self.path)
        return ExecutionResult(0, "plotted\n", code_file=None, artifacts=(plot,))

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


@pytest.mark.parametrize("vision", [True, False])
async def test_plots_are_sent_to_models_with_vision_only(tmp_path: Path, vision: bool) -> None:
    client = scripted(WORKS, "A red one.", vision=vision)
    agent = CodeExecutorAgent("coder", Plotter(tmp_path / "plot.png"), model_client=client)

    await agent.run(task="Plot.")

    content = received_by(client)[1][-1].content
    words = f"plotted\n\nFiles made or changed: plot.png ({(tmp_path / 'plot.png').stat().st_size} bytes)."
    if not vision:
        assert content == words
        return
    assert isinstance(content, list)
    assert content[0] == words
    assert [type(part) for part in content] == [str, EncodedImage]
    other = CodeExecutorAgent("coder", Plotter(tmp_path / "plot.png"), model_client=scripted("ok"))
    await other.load_state(json.loads(json.dumps(await agent.save_state())))
    await other.run(task="And?")


async def test_task_with_an_image_reaches_a_model_without_vision_without_it(executor: CodeExecutor) -> None:
    client = scripted("ok")
    image = Image.from_pil(PILImage.new("RGB", (2, 2)))
    task = MultiModalMessage(content=["What is this?", image], source="user")

    await CodeExecutorAgent("coder", executor, model_client=client).run(task=task)

    assert received_by(client)[0][-1] == UserMessage(content="What is this?\n<image>", source="user")
