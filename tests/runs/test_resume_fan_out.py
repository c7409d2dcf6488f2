"""Continuing a turn in which several agents work at the same time."""

import asyncio
import json

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.teams import DiGraphBuilder

from autogen_codeact.runs import resume, resumed
from autogen_codeact.teams import Graph, Team
from tests.agents.support import scripted

from .support import events_of, lines_of, run


class Ordered(AssistantAgent):
    """Speaks after another one, although both have the floor."""

    def __init__(self, name, answers, after=None, said=None):
        super().__init__(name, scripted(*answers))
        self.after, self.said = after, said or asyncio.Event()

    async def on_messages_stream(self, messages, cancellation_token):
        if self.after is not None:
            await self.after.wait()
        async for item in super().on_messages_stream(messages, cancellation_token):
            yield item
        self.said.set()


def team(first, second, **answers):
    """`a`, then `b` and `c` at the same time, in which one is quicker, then `d`."""
    made = {name: Ordered(name, answers[name]) for name in "abcd"}
    made[second].after = made[first].said
    builder = DiGraphBuilder()
    for agent in made.values():
        builder.add_node(agent)
    for source, target in ("ab", "ac", "bd", "cd"):
        builder.add_edge(source, target)
    return Team(list(made.values()), speakers=Graph(builder.build()), max_turns=3)


ANSWERS = {name: [f"From {name}."] for name in "abcd"}


def messages_of(folder):
    return [event.message["content"] for event in events_of(folder) if event.type == "message"]


def cut_after(folder, text):
    lines = lines_of(folder)
    (at,) = [
        n
        for n, line in enumerate(lines)
        if b'"message"' in line
        and json.loads(line)["type"] == "message"
        and json.loads(line)["message"]["content"] == text
    ]
    (folder / "events.jsonl").write_bytes(b"".join(lines[: at + 1]))


async def test_messages_of_agents_that_finish_in_another_order_are_in_the_log_once(tmp_path):
    folder = tmp_path / "run"
    await run(team("c", "b", **ANSWERS), folder)
    cut_after(folder, "From c.")
    again = team("b", "c", **{**ANSWERS, "a": [], "c": []})
    *new, result = [item async for item in resumed(folder, agent=again)]
    assert [message.to_text() for message in new] == ["From b.", "From d."]
    assert messages_of(folder) == ["Go.", "From a.", "From c.", "From b.", "From d."]
    assert isinstance(result, TaskResult)
    assert [message.to_text() for message in result.messages] == ["Go.", "From a.", "From b.", "From c.", "From d."]


async def test_a_run_whose_messages_contain_a_secret_is_continued(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setenv("SHOP_API_KEY", "From the shop")
    answers = {name: [f"From the shop {name}."] for name in "abcd"}
    await run(team("c", "b", **answers), folder)
    cut_after(folder, "[secret] c.")
    await resume(folder, agent=team("b", "c", **{**answers, "a": [], "c": []}))
    assert messages_of(folder) == ["Go.", "[secret] a.", "[secret] c.", "[secret] b.", "[secret] d."]
