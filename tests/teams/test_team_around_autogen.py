"""AutoGen's own teams as participants."""

import asyncio
import logging

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from autogen_codeact.teams import Team

from .support import CountingAgent, NoQuotaLeft, ScriptedAgent, SleepingAgent, cut_short, others


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "autogen_core")  # it logs what its agents raise


class Polite(SleepingAgent):
    """Ends its turn when its token is cancelled."""

    async def on_messages(self, messages, cancellation_token):
        turn = asyncio.ensure_future(super().on_messages(messages, cancellation_token))
        cancellation_token.link_future(turn)
        return await turn


async def refused(team):
    with pytest.raises(RuntimeError, match="'inner' is a team of AutoGen's whose run was interrupted"):
        await team.run(task="two")


async def test_a_failure_in_autogens_team_is_raised_and_the_next_turn_says_that_it_is_unusable(tidy):
    scripted, counting = ScriptedAgent([NoQuotaLeft("none left")]), CountingAgent("a")
    inner = RoundRobinGroupChat([CountingAgent("x"), scripted], name="inner", max_turns=2)
    team = Team([counting, inner], max_turns=2)
    with pytest.raises(RuntimeError, match="NoQuotaLeft: none left"):
        await team.run(task="one")
    assert others() == set()
    assert counting.heard == [["one"]]
    await refused(team)


async def test_cancelling_a_run_in_autogens_team_ends_it_in_under_a_second(tidy):
    polite, x = Polite(), CountingAgent("x")
    inner = RoundRobinGroupChat([x, polite], name="inner", max_turns=2)
    team = Team([inner, CountingAgent("a")], max_turns=2)
    await cut_short(team, polite)
    assert others() == set()
    assert not polite.finished
    await refused(team)
