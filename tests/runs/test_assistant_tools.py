"""Calls that the model of AutoGen's `AssistantAgent` makes itself: logged, and never made again when a run is continued."""

import json

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.tools import AgentTool
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.runs import load_run, resumed
from autogen_codeact.runs.recording_parts import UNKNOWN

from .support import cut, lines_of, run, types_of

INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
)


def calls(*arguments, name="pay"):
    made = [FunctionCall(id=str(at), name=name, arguments=json.dumps(each)) for at, each in enumerate(arguments)]
    return CreateResult(finish_reason="function_calls", content=made, usage=RequestUsage(1, 1), cached=False)


ANSWERS = [calls({"amount": 1}, {"amount": 2}), calls({"amount": 3}), "Paid."]


def make_agent(paid, answers=ANSWERS):
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    model = ReplayChatCompletionClient(list(answers), INFO)
    return AssistantAgent("clerk", model, tools=[pay], max_tool_iterations=3)


async def test_completed_calls_are_never_made_again(tmp_path):
    before = []
    await run(make_agent(before), tmp_path / "run")
    for number in range(2, len(lines_of(tmp_path / "run"))):
        folder = cut(tmp_path / "run", tmp_path / f"run-{number}", number)
        events = list(load_run(folder))
        started = [event.arguments["amount"] for event in events if event.type == "host_call_started"]
        answered = sum(event.type == "model_call_finished" for event in events)
        paid = []
        items = [item async for item in resumed(folder, agent=make_agent(paid, ANSWERS[answered:]))]
        assert isinstance(items[-1], TaskResult)
        assert items[-1].messages[-1].to_text() == "Paid."
        assert sorted(started + paid) == [1, 2, 3], number
        results = [
            each for item in items[-1].messages if isinstance(item, ToolCallExecutionEvent) for each in item.content
        ]
        ended = sum(event.type == "host_call_finished" for event in events)
        assert [each.content for each in results].count(UNKNOWN) == len(started) - ended


async def test_tool_that_runs_an_agent_is_run_again_and_the_agent_answers_from_the_log(tmp_path):
    def make(outer, inner):
        helper = AssistantAgent("helper", ReplayChatCompletionClient(inner, INFO), description="Helps.")
        return AssistantAgent("boss", ReplayChatCompletionClient(outer, INFO), tools=[AgentTool(helper)])

    await run(make([calls({"task": "Help."}, name="helper")], ["Helped."]), tmp_path / "run")
    assert not types_of(tmp_path / "run", "host_call")
    folder = cut(tmp_path / "run", tmp_path / "cut", -3)
    items = [item async for item in resumed(folder, agent=make([], []))]
    assert "Helped." in items[-1].messages[-1].to_text()
