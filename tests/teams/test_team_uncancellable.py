"""Participants and conditions that fail or do not let go, AutoGen's teams among them: the run ends all the same."""

import asyncio
import logging

import pytest
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import StopMessage
from autogen_agentchat.teams import RoundRobinGroupChat

from autogen_codeact.teams import Team

from .support import (
    CountingAgent,
    NoQuotaLeft,
    ScriptedAgent,
    SleepingAgent,
    Stateless,
    UncancellableAgent,
    begun,
    cancelled,
    cut_short,
    others,
    texts_of,
)

pytestmark = pytest.mark.usefixtures("tidy")


class Impatient(Team):
    BUSY_WAIT_S = 0.05


async def test_participant_that_ignores_its_cancellation_is_left_running_with_a_warning(caplog):
    uncancellable, counting = UncancellableAgent(), CountingAgent()

    team = Impatient([uncancellable, counting], max_turns=2)
    run = await begun(team, uncancellable)

    with caplog.at_level(logging.WARNING):
        assert isinstance(await cancelled(run), asyncio.CancelledError)

    assert [record.getMessage() for record in caplog.records if record.name.startswith("autogen_codeact")] == [
        "The turn of 'uncancellable' did not end within 0.4 s of being cancelled. It keeps running; its output is discarded."
    ]
    (left,) = others()
    with pytest.raises(RuntimeError, match="'uncancellable' is still busy"):
        await team.run(task="two")
    with pytest.raises(RuntimeError, match="'uncancellable' is still busy"):
        await team.reset()
    uncancellable.let_go.set()
    await asyncio.wait({left})
    assert texts_of(await team.run(task="three")) == [
        ("user", "three"),
        ("uncancellable", "heard 3"),
        ("counting", "heard 4"),
    ]
    assert uncancellable.heard == [["one", "two", "three"]]


async def test_second_cancellation_does_not_stop_the_clean_up():
    uncancellable = UncancellableAgent()

    team = Impatient([uncancellable], max_turns=1)
    run = await begun(team, uncancellable)
    run.cancel()
    await asyncio.sleep(0.05)
    assert not run.done()
    assert isinstance(await cancelled(run), asyncio.CancelledError)
    with pytest.raises(RuntimeError, match="'uncancellable' is still busy"):  # never two turns of one agent at once
        await team.run(task="two")
    uncancellable.let_go.set()
    assert texts_of(await team.run(task="three")) == [("user", "three"), ("uncancellable", "heard 3")]


async def test_a_state_is_saved_and_loaded_around_a_turn_that_does_not_end():
    uncancellable, other = UncancellableAgent(), CountingAgent("uncancellable")
    team = Team([uncancellable], max_turns=1)
    await cut_short(team, uncancellable)
    uncancellable.heard.append(["half a turn"])

    saved = await team.save_state()
    assert saved["agent_states"]["uncancellable"]["agent_state"] == {"heard": []}
    other.heard.append(["elsewhere"])
    await team.load_state(await Team([other]).save_state())
    assert uncancellable.heard == [["half a turn"]]  # not under the hands of the turn that goes on

    uncancellable.let_go.set()
    assert texts_of(await team.run(task="two")) == [("user", "two"), ("uncancellable", "heard 1")]
    assert uncancellable.heard == [["elsewhere"], ["two"]]


async def test_a_participant_that_cannot_save_its_state_is_not_asked_to_load_one():
    stateless = Stateless()
    team = Team([stateless], max_turns=1)
    await cut_short(team, stateless)
    assert texts_of(await team.run(task="two")) == [("user", "two"), ("sleeping", "heard 2")]


class Faulty(TerminationCondition):
    """Fails, or hangs, at its n-th call."""

    def __init__(self, at, error=None):
        self.calls, self.at, self.error, self.begun, self.resets = 0, at, error, asyncio.Event(), 0

    @property
    def terminated(self):
        return False

    async def __call__(self, messages):
        self.calls += 1
        if self.calls == self.at:
            self.begun.set()
            if self.error:
                raise self.error
            await asyncio.sleep(3600)
        return StopMessage(content="enough", source="me") if self.calls > self.at else None

    async def reset(self):
        self.resets += 1


@pytest.mark.parametrize("at", [1, 2])
async def test_a_termination_condition_that_raises_raises_out_of_the_run(at):
    error = NoQuotaLeft("no judge")
    condition, counting = Faulty(at, error), CountingAgent()
    team = Team([counting, CountingAgent("other")], termination_condition=condition)
    with pytest.raises(NoQuotaLeft) as caught:
        await team.run(task="one")
    assert caught.value is error
    assert others() == set()
    assert condition.resets == 1
    speaker = "counting" if at == 1 else "other"  # the turn before the failure was a whole one
    assert texts_of(await team.run()) == [(speaker, "heard 1" if at == 1 else "heard 2")]


async def test_a_termination_condition_that_hangs_is_cut_short():
    condition = Faulty(1)
    team = Team([CountingAgent()], termination_condition=condition)
    await cut_short(team, condition)
    assert others() == set()
    assert (await team.run()).stop_reason == "enough"


# AutoGen's own teams as participants


class Polite(SleepingAgent):
    """Ends its turn when its token is cancelled."""

    async def on_messages(self, messages, cancellation_token):
        turn = asyncio.ensure_future(super().on_messages(messages, cancellation_token))
        cancellation_token.link_future(turn)
        return await turn


async def refused(team):
    with pytest.raises(RuntimeError, match="'inner' is a team of AutoGen's whose run was interrupted"):
        await team.run(task="two")


async def test_a_failure_in_autogens_team_is_raised_and_the_next_turn_says_that_it_is_unusable():
    scripted, counting = ScriptedAgent([NoQuotaLeft("none left")]), CountingAgent("a")
    inner = RoundRobinGroupChat([CountingAgent("x"), scripted], name="inner", max_turns=2)
    team = Team([counting, inner], max_turns=2)
    with pytest.raises(RuntimeError, match="NoQuotaLeft: none left"):
        await team.run(task="one")
    assert others() == set()
    assert counting.heard == [["one"]]
    await refused(team)


async def test_cancelling_a_run_in_autogens_team_ends_it_in_under_a_second():
    polite, x = Polite(), CountingAgent("x")
    inner = RoundRobinGroupChat([x, polite], name="inner", max_turns=2)
    team = Team([inner, CountingAgent("a")], max_turns=2)
    await cut_short(team, polite)
    assert others() == set()
    assert not polite.finished
    await refused(team)
