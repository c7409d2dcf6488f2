"""The log of a run whose model client is a `ReliableClient`: that of the client inside."""

from pathlib import Path

from autogen_agentchat.agents import AssistantAgent

from autogen_codeact.agents import ReliableClient
from autogen_codeact.runs import load_run, recorded
from autogen_codeact.runs.events import ModelCallFinished, ModelCallStarted
from tests.openai_server import OpenAIServer, Reply
from tests.runs.support import events_of

WORDS = "It is all a matter of taste."


async def test_answer_that_began_again_is_one_call_of_the_model_inside(tmp_path: Path) -> None:
    folder, told = tmp_path / "run", list[str]()
    async with OpenAIServer([Reply(WORDS, break_after=1), WORDS]) as server:
        client = ReliableClient(server.client(max_retries=2), 30.0, tell=told.append)
        agent = AssistantAgent("writer", client, model_client_stream=True)
        _ = [item async for item in recorded(agent, task="What is it?", path=folder)]
        assert len(told) == 1
        assert all(request["stream"] for request in server.requests)
    started = load_run(folder).started
    (info,) = started.agents
    assert info.model == "scripted"
    assert started.component is not None
    assert started.component["config"]["model_client"]["provider"] == (
        "autogen_ext.models.openai.OpenAIChatCompletionClient"
    )
    assert "none-needed" not in (folder / "events.jsonl").read_text()
    calls = [event for event in events_of(folder) if isinstance(event, ModelCallStarted | ModelCallFinished)]
    assert [type(call) for call in calls] == [ModelCallStarted, ModelCallFinished]
    assert isinstance(calls[1], ModelCallFinished)
    assert calls[1].result is not None
    assert (calls[1].result["content"], calls[1].result["finish_reason"]) == (WORDS, "stop")
