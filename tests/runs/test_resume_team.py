"""Continuing the run of a team."""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.conditions import TextMentionTermination

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs import recorded, resume
from autogen_codeact.teams import Selector, Team
from tests.openai_server import OpenAIServer
from tests.runs.example_run import counted, counting_tool, expected, model

STEPS = 3
NAMES = ("ann", "bob", "cid")
PROMPT = "Who is next of "


def answers(messages: list[dict[str, Any]]) -> str:
    """What the agents' model says, or the selector's: one agent after the other."""
    asked = str(messages[-1]["content"])
    if not asked.startswith(PROMPT):
        return model(STEPS, per_turn=1)(messages)
    return NAMES[asked.count("Done up to") % 3]


def make_team(executor: SandboxCodeExecutor, server: OpenAIServer, calls: Path) -> Team:
    """Three agents with one session, and a model that names the next."""
    tool = counting_tool(calls)
    agents: list[ChatAgent] = [
        CodeActAgent(name, executor, model_client=server.client(), tools=[tool], describe_environment=False)
        for name in NAMES
    ]
    end = TextMentionTermination("The values are")
    return Team(
        agents,
        termination_condition=end,
        speakers=Selector(server.client(), prompt=PROMPT + "{participants}? {roles} {history}"),
    )


@pytest.mark.timeout(120)
async def test_team_continues_in_the_turn_that_was_interrupted_with_the_speaker_that_was_named(
    bubblewrap: None, tmp_path: Path
) -> None:
    folder, calls = tmp_path / "run", tmp_path / "calls"
    async with (
        OpenAIServer(answers) as server,
        BubblewrapCommandLineCodeExecutor(mode="session") as executor,
        BubblewrapCommandLineCodeExecutor(mode="session") as other,
    ):
        team = make_team(executor, server, calls)
        async with aclosing(recorded(team, task="Triple.", path=folder)) as items:
            whole = [item async for item in items][-1]
        assert isinstance(whole, TaskResult)
        assert [message.source for message in whole.messages if message.to_text().startswith("Done")] == ["ann", "bob"]
        lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
        events = [json.loads(line) for line in lines]
        (named,) = [n for n, e in enumerate(events) if e["type"] == "block_finished" and e["agent"] == "bob"]
        (folder / "events.jsonl").write_bytes(b"".join(lines[: named + 1]))
        calls.unlink()
        before = len(server.requests)
        result = await resume(folder, agent=make_team(other, server, calls))
    assert [message.to_text() for message in result.messages] == [message.to_text() for message in whole.messages]
    assert result.messages[-1].to_text() == expected(STEPS)
    assert counted(calls) == [3]
    # Bob has the floor, and ends his turn; then the selector is asked, and Cid works and answers.
    asked = [
        "selector" if str(r["messages"][-1]["content"]).startswith(PROMPT) else "agent"
        for r in server.requests[before:]
    ]
    assert asked == ["agent", "selector", "agent", "agent"]
