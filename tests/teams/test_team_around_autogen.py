"""AutoGen's own teams as participants: what cuts their run short does not block them, or the team around them."""

import asyncio
import logging

import pytest
from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core import SingleThreadedAgentRuntime
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.teams import Team

from .support import CountingAgent, NoQuotaLeft, ScriptedAgent, SleepingAgent, cut_short, others, texts_of


def society(team):
    return SocietyOfMindAgent("mind", team, ReplayChatCompletionClient(["Summary."] * 9))


def twice(team):
    return RoundRobinGroupChat([RoundRobinGroupChat([team], name="middle", max_turns=1)], name="far", max_turns=1)


NESTED = {"itself": lambda team: team, "in AutoGen's teams": twice, "in an agent": society}


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "autogen_core")  # it logs what its agents raise


@pytest.mark.parametrize("how", NESTED)
async def test_a_failure_in_autogens_team_is_raised_and_undone(how, tidy):
    scripted, x, counting = ScriptedAgent([NoQuotaLeft("none left")]), CountingAgent("x"), CountingAgent("a")
    inner = NESTED[how](RoundRobinGroupChat([x, scripted], name="inner", max_turns=2))
    team = Team([counting, inner], max_turns=2)
    with pytest.raises(RuntimeError, match="NoQuotaLeft: none left"):
        await team.run(task="one")
    assert others() == set()
    assert counting.heard == [["one"]]
    assert x.heard == []

    result = await team.run(task="two")
    reset = how == "in an agent"  # which resets its team after each run
    assert x.heard == ([] if reset else [["one", "heard 1", "two"]])
    assert scripted.heard == ([] if reset else [["one", "heard 1", "two", "heard 3"]])
    assert texts_of(result)[-1] == ("a", "heard 2" if reset else "heard 3")
    assert result.stop_reason == "Maximum number of turns 2 reached."


@pytest.mark.parametrize("how", NESTED)
async def test_cancelling_a_run_in_autogens_team_ends_it_in_under_a_second_and_undoes_it(how, tidy):
    sleeping, x = SleepingAgent(), CountingAgent("x")
    inner = NESTED[how](RoundRobinGroupChat([x, sleeping], name="inner", max_turns=2))
    team = Team([inner, CountingAgent("a")], max_turns=2)
    await cut_short(team, sleeping)
    assert others() == set()
    assert not sleeping.finished
    assert x.heard == []

    result = await team.run(task="two")
    reset = how == "in an agent"  # which resets its team after each run
    assert x.heard == ([] if reset else [["one", "two"]])
    assert sleeping.heard == ([] if reset else [["one", "two", "heard 2"]])
    assert texts_of(result)[-1] == ("a", "heard 3" if reset else "heard 4")


async def test_what_autogens_team_remembers_from_before_its_interrupted_turn_stays():
    scripted = ScriptedAgent([])
    inner = RoundRobinGroupChat([CountingAgent("x"), scripted, CountingAgent("z")], name="inner", max_turns=1)
    team = Team([inner], max_turns=1)
    assert texts_of(await team.run(task="one"))[1:] == [("x", "heard 1")]
    scripted.script = [NoQuotaLeft()]
    with pytest.raises(RuntimeError, match="NoQuotaLeft"):
        await team.run(task="two")
    assert texts_of(await team.run())[-1] == ("scripted", "heard 3")
    assert texts_of(await team.run())[-1] == ("z", "heard 4")


async def test_a_runtime_of_the_users_is_left_alone():
    runtime = SingleThreadedAgentRuntime()
    runtime.start()
    sleeping = SleepingAgent()
    inner = RoundRobinGroupChat([sleeping], name="inner", max_turns=1, runtime=runtime)
    team = Team([inner], max_turns=1)
    await cut_short(team, sleeping)
    assert inner._runtime is runtime
    for task in others():
        task.cancel()
    await asyncio.wait(others() or {asyncio.ensure_future(asyncio.sleep(0))}, timeout=5)


async def test_autogens_selector_in_a_team():
    selector = ReplayChatCompletionClient(["x", "y"])
    inner = SelectorGroupChat([CountingAgent("x"), CountingAgent("y")], selector, name="inner", max_turns=2)
    assert texts_of(await Team([inner, CountingAgent("a")], max_turns=2).run(task="go")) == [
        ("user", "go"),
        ("x", "heard 1"),
        ("y", "heard 2"),
        ("a", "heard 3"),
    ]
