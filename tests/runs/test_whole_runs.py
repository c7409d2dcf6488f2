"""The whole event lists of runs: one agent with tools, one with a retry, and a team of two."""

import re

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_ext.models.openai import OpenAIChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs import recorded
from autogen_codeact.runs.folder import RunFolder
from autogen_codeact.teams import Team
from tests.agents.codeact import python
from tests.agents.support import scripted

from .support import events_of, listed, run, types_of

PLOT = """
open('a.bin', 'wb').write(bytes(range(256)) * 100)
display({'image/png': 'iVBORw0KGgo=', 'text/plain': 'an image'}, raw=True)
"""


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def named(folder, kind):
    return [event for event in events_of(folder) if event.type == kind]


async def test_events_of_an_agent_with_tools(session, tmp_path):
    model = scripted(python("x = add(1, 2)\nx"), python("print(x)"), "3.")
    agent = CodeActAgent("actor", session, model_client=model, tools=[add])
    items = await run(agent, tmp_path / "run")
    assert types_of(tmp_path / "run") == listed(
        "run_started, boundary start, message TextMessage, model_call_started actor 1, "
        "model_call_finished actor 1, message CodeGenerationEvent, block_started actor 1, "
        "host_call_started actor 1 1, host_call_finished actor 1 1, block_finished actor 1, "
        "message CodeExecutionEvent, model_call_started actor 2, model_call_finished actor 2, "
        "message CodeGenerationEvent, block_started actor 2, block_finished actor 2, message CodeExecutionEvent, "
        "model_call_started actor 3, model_call_finished actor 3, message TextMessage, run_finished"
    )
    *_, last = events_of(tmp_path / "run")
    assert last.outcome == "completed"
    asked = named(tmp_path / "run", "model_call_started")
    assert [(each.shared, len(each.messages)) for each in asked] == [(0, 2), (2, 2), (4, 2)]
    assert asked[1].messages[0]["content"] == python("x = add(1, 2)\nx")
    answers = [event.result["content"] for event in named(tmp_path / "run", "model_call_finished")]
    assert answers == [python("x = add(1, 2)\nx"), python("print(x)"), "3."]
    results = [each.result.result(lambda file: b"") for each in named(tmp_path / "run", "block_finished")]
    executed = [item.result for item in items if type(item).__name__ == "CodeExecutionEvent"]
    assert results == executed
    assert all(type(result) is ExecutionResult for result in results)
    assert results[0].tool_calls[0].result == 3


async def test_events_of_a_team_of_two(session, tmp_path):
    actor = CodeActAgent("actor", session, model_client=scripted(python("print(add(1, 2))"), "3."), tools=[add])
    critic = AssistantAgent("critic", scripted("Fine."))
    team = Team([actor, critic], termination_condition=MaxMessageTermination(3))
    before = team.on_boundary
    await run(team, tmp_path / "run")
    assert team.on_boundary is before
    shown = types_of(tmp_path / "run")
    assert [each for each in shown if not each.startswith("message")] == listed(
        "run_started, boundary start, boundary turn, model_call_started actor 1, "
        "model_call_finished actor 1, block_started actor 1, host_call_started actor 1 1, "
        "host_call_finished actor 1 1, block_finished actor 1, model_call_started actor 2, "
        "model_call_finished actor 2, boundary turn, model_call_started critic 1, model_call_finished critic 1, "
        "run_finished"
    )
    started = events_of(tmp_path / "run")[0]
    assert [(info.name, info.kind, info.tools) for info in started.agents] == [
        ("actor", "CodeActAgent", ["add"]),
        ("critic", "AssistantAgent", []),
    ]
    assert started.component["provider"] == "autogen_codeact.teams.Team"
    boundary = named(tmp_path / "run", "boundary")[1]
    assert "run" in boundary.state


async def test_displays_and_files_of_a_block_are_copied(session, tmp_path):
    agent = CodeActAgent("actor", session, model_client=scripted(python(PLOT), "Done."))
    await run(agent, tmp_path / "run")
    (event,) = named(tmp_path / "run", "block_finished")
    read = RunFolder(tmp_path / "run").read_file
    artifacts = {each.name: each.file for each in event.result.artifacts}
    assert read(artifacts["a.bin"]) == bytes(range(256)) * 100
    (display,) = event.result.displays
    assert display.data == {"text/plain": "an image"}
    assert read(display.files["image/png"]) == b"\x89PNG\r\n\x1a\n"


async def test_parts_of_agents_are_put_back_after_a_failure(session, tmp_path):
    model, other = scripted(python("add(1, 2)"), "3.", "4."), scripted()
    agent = CodeActAgent("actor", session, model_client=model, tools=[add])
    assistant = AssistantAgent("critic", other)
    team = Team([agent, assistant], max_turns=2)
    with pytest.raises(ValueError, match="No more mock responses"):
        await run(team, tmp_path / "run")
    size = (tmp_path / "run" / "events.jsonl").stat().st_size
    assert vars(assistant)["_model_client"] is other
    assert agent.model_client is model
    assert (await agent.run(task="Again.")).messages[-1].content == "4."
    assert (tmp_path / "run" / "events.jsonl").stat().st_size == size


async def test_no_key_is_in_the_folder(session, tmp_path, monkeypatch):
    monkeypatch.setenv("BANK_API_TOKEN", "token-of-the-bank")
    client = OpenAIChatCompletionClient(
        model="gpt-4o",
        api_key="sk-key-of-the-model",
        default_headers={"X-Api-Key": "header-key-1"},
        base_url="http://127.0.0.1:9/v1",
    )
    agent = CodeActAgent("actor", session, model_client=client)
    code = "sk-key-of-the-model token-of-the-bank header-key-1"
    with pytest.raises(Exception, match="Connection error"):
        [item async for item in recorded(agent, task=f"Say {code}.", path=tmp_path / "run")]
    await client.close()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    whole = b"".join(path.read_bytes() for path in files)
    assert b"Say [secret] [secret] [secret]." in whole
    assert not re.search(rb"sk-key|token-of|header-key", whole)
    started = events_of(tmp_path / "run")[0]
    assert started.secrets == ["/config/model_client/config/api_key"]
    assert "api_key" not in started.component["config"]["model_client"]["config"]


async def test_agents_of_nested_teams_have_names_of_their_own(tmp_path):
    inner = Team([AssistantAgent("critic", scripted("Inner."))], name="inner", max_turns=1)
    team = Team([AssistantAgent("critic", scripted("Outer.")), inner], max_turns=2)
    await run(team, tmp_path / "run")
    assert [info.name for info in events_of(tmp_path / "run")[0].agents] == ["critic", "critic#2"]
    answers = {event.agent: event.result["content"] for event in named(tmp_path / "run", "model_call_finished")}
    assert answers == {"critic": "Outer.", "critic#2": "Inner."}
