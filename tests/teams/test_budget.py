"""A budget ends a run in mid-turn, nested teams included."""

import asyncio
import json

import pytest
from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import ThoughtEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from autogen_codeact.teams import Budget, Team

from .support import CountingAgent, ScriptedAgent, SleepingAgent, coder, others, texts_of

pytestmark = pytest.mark.usefixtures("tidy")


def thought(tokens, text="hm"):
    usage = RequestUsage(prompt_tokens=tokens - 1, completion_tokens=1)
    return ThoughtEvent(content=text, source="scripted", models_usage=usage)


class Sleeper(ScriptedAgent):
    """Sleeps after its thoughts, until its turn is cancelled; a second turn is a good one."""

    async def on_messages(self, messages, cancellation_token):
        if len(self.heard) == 0 and not getattr(self, "slept", False):
            self.slept = True
            await asyncio.sleep(3600)
        return await super().on_messages(messages, cancellation_token)


async def test_tokens_end_a_run_in_mid_turn_and_the_turn_has_not_happened():
    scripted, counting = Sleeper([thought(60), thought(50, "enough")]), CountingAgent()
    condition = MaxMessageTermination(20)
    team = Team([counting, scripted], budget=Budget(max_tokens=100), termination_condition=condition)
    result = await team.run(task="go")
    assert texts_of(result) == [
        ("user", "go"),
        ("counting", "heard 1"),
        ("scripted", "hm"),
        ("scripted", "enough"),
    ]
    assert result.stop_reason == "The budget of 100 tokens is used up (110). The turn of scripted was not finished."
    assert scripted.heard == []
    assert others() == set()
    scripted.script = [thought(30)]  # a new run has a new budget
    stream = team.run_stream()
    assert [(await anext(stream)).to_text() for _ in range(2)] == ["hm", "heard 2"]
    await stream.aclose()


async def test_a_turn_that_uses_up_the_budget_with_its_answer_has_happened():
    model = ReplayChatCompletionClient(["one two three", "four"])
    counting = CountingAgent()
    team = Team([coder(model), counting], budget=Budget(max_tokens=1))
    result = await team.run(task="go")
    assert texts_of(result) == [("user", "go"), ("coder", "one two three")]
    assert result.stop_reason.startswith("The budget of 1 token is used up (")
    assert texts_of(await team.run())[0] == ("counting", "heard 2")


async def test_a_termination_condition_comes_before_the_budget():
    team = Team([CountingAgent()], budget=Budget(max_turns=1), termination_condition=MaxMessageTermination(2))
    assert (await team.run(task="go")).stop_reason.startswith("Maximum number of messages 2 reached")


async def test_seconds_end_a_run_in_mid_turn():
    sleeping = SleepingAgent()
    team = Team([sleeping], budget=Budget(max_seconds=0.1))
    result = await team.run(task="go")
    assert texts_of(result) == [("user", "go")]
    assert result.stop_reason == "The budget of 0.1 s is used up. The turn of sleeping was not finished."
    assert others() == set()
    assert not sleeping.finished
    assert sleeping.heard == []


async def test_turns_of_nested_teams_count_and_only_their_next_turn_does_not_happen():
    inner = Team([CountingAgent("x"), CountingAgent("y")], name="inner", max_turns=10)
    outer = Team(
        [CountingAgent("a"), Team([inner], name="middle", max_turns=1), CountingAgent("b")], budget=Budget(max_turns=4)
    )
    result = await outer.run(task="go")
    assert [source for source, _ in texts_of(result)] == ["user", "a", "x", "y", "x"]
    assert result.stop_reason == "The budget of 4 turns is used up."
    assert texts_of(await outer.run())[0] == ("b", "heard 5")


async def test_tokens_of_a_nested_team_count_in_mid_turn_and_undo_its_turn_only():
    scripted, x = Sleeper([thought(60), thought(50)]), CountingAgent("x")
    inner = Team([x, scripted], name="inner", max_turns=10)
    outer = Team([CountingAgent("a"), inner], budget=Budget(max_tokens=100))
    result = await outer.run(task="go")
    assert texts_of(result)[1:] == [("a", "heard 1"), ("x", "heard 2"), ("scripted", "hm"), ("scripted", "hm")]
    assert result.stop_reason == "The budget of 100 tokens is used up (110)."
    assert (x.heard, scripted.heard) == ([["go", "heard 1"]], [])
    assert others() == set()


async def test_a_nested_teams_own_budget_ends_only_the_nested_run():
    inner = Team([CountingAgent("x")], name="inner", budget=Budget(max_turns=2))
    outer = Team([inner, CountingAgent("a")], max_turns=2)
    result = await outer.run(task="go")
    assert [source for source, _ in texts_of(result)] == ["user", "x", "x", "a"]
    assert result.stop_reason == "Maximum number of turns 2 reached."


@pytest.mark.parametrize("kind", ["autogen", "society"])
async def test_tokens_of_autogens_nested_teams_count_in_mid_turn(kind):
    inner = RoundRobinGroupChat(
        [ScriptedAgent([thought(60), thought(50)]), CountingAgent("x")], name="inner", max_turns=2
    )
    if kind == "society":
        inner = SocietyOfMindAgent("mind", team=inner, model_client=ReplayChatCompletionClient(["never said"]))
    result = await Team([inner], budget=Budget(max_tokens=100)).run(task="go")
    assert (
        result.stop_reason == f"The budget of 100 tokens is used up (110). The turn of {inner.name} was not finished."
    )
    assert ("x", "heard 2") not in texts_of(result)


async def test_what_a_run_has_used_counts_when_it_goes_on():
    states = []

    async def keep(state):
        states.append(json.dumps(state))

    team = Team([CountingAgent("a"), CountingAgent("b")], budget=Budget(max_turns=3))
    team.on_boundary = keep
    await team.run(task="go")
    fresh = Team([CountingAgent("a"), CountingAgent("b")], budget=Budget(max_turns=3))
    events = [event async for event in fresh.continue_stream(json.loads(states[2]))]
    assert [event.source for event in events[:-1]] == ["a"]
    assert events[-1].stop_reason == "The budget of 3 turns is used up."


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": 0}, {"max_seconds": -1}, {"max_seconds": float("nan")}, {"tokens": 3}]
)
def test_invalid_budget_is_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Budget(**wrong)
