"""What a team does when nothing goes wrong: AutoGen's round robin, in teams of teams, over several event loops."""

import asyncio
import json
import signal

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import ExternalTermination, MaxMessageTermination
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.teams import FinalWordTermination, Team

from .compare import bare
from .support import (
    PRINT_42,
    CountingAgent,
    NoQuotaLeft,
    ScriptedAgent,
    ScriptedModel,
    SleepingAgent,
    UncancellableAgent,
    coder,
    cut_short,
    others,
    texts_of,
)


@pytest.mark.parametrize("emit_team_events", [False, True])
async def test_team_gives_the_same_messages_as_the_round_robin_of_autogen(executor, emit_team_events):
    results = []
    for make in (RoundRobinGroupChat, Team):
        model = ReplayChatCompletionClient([PRINT_42, "It is 42. TERMINATE", "As I said. TERMINATE"])
        team = make(
            [coder(model), CodeExecutorAgent("executor", executor, sources=["coder"])],
            name="Duo",
            termination_condition=FinalWordTermination(sources=["coder"]) | MaxMessageTermination(9),
            emit_team_events=emit_team_events,
        )
        first = await team.run(task="six times seven", output_task_messages=False)
        second = await team.run()
        told = [call["messages"] for call in model.create_calls]
        results.append((bare(first), first.stop_reason, bare(second), second.stop_reason, told))
        if emit_team_events:
            assert "SelectSpeakerEvent" in [message.type for message in first.messages]
    assert results[0] == results[1]


async def test_run_is_the_collected_stream(executor):
    def team():
        model = ReplayChatCompletionClient([PRINT_42, "It is 42. TERMINATE"])
        writer = AssistantAgent("coder", model, model_client_stream=True)
        return Team([writer, CodeExecutorAgent("executor", executor)], termination_condition=FinalWordTermination())

    streamed = [event async for event in team().run_stream(task="six times seven")]
    result = await team().run(task="six times seven")

    *events, last = streamed
    assert isinstance(last, TaskResult)
    assert any(isinstance(event, ModelClientStreamingChunkEvent) for event in events)
    assert [event for event in events if not isinstance(event, ModelClientStreamingChunkEvent)] == last.messages
    assert texts_of(last) == texts_of(result)
    assert last.stop_reason == result.stop_reason


async def test_max_turns_and_an_external_stop():
    counting = CountingAgent()
    result = await Team([counting], max_turns=3).run(task="go")
    assert texts_of(result)[1:] == [("counting", "heard 1"), ("counting", "heard 0"), ("counting", "heard 0")]
    assert result.stop_reason == "Maximum number of turns 3 reached."

    stop = ExternalTermination()
    stop.set()
    assert len((await Team([counting], termination_condition=stop).run(task="go")).messages) == 1


async def test_reset_forgets_everything():
    condition = MaxMessageTermination(3)
    first, second = CountingAgent("first"), CountingAgent("second")
    team = Team([first, second], termination_condition=condition)
    fresh = await team.save_state()
    before = texts_of(await team.run(task="one"))
    await team.reset()
    assert await team.save_state() == fresh
    assert texts_of(await team.run(task="one")) == before


async def test_pause_and_resume_reach_every_participant_running_or_not():
    calls = []

    class Pausing(CountingAgent):
        async def on_pause(self, cancellation_token):
            calls.append((self.name, "pause"))

        async def on_resume(self, cancellation_token):
            calls.append((self.name, "resume"))

    team = Team([Pausing("one"), Team([Pausing("two")], name="inner")])
    async with asyncio.timeout(20):
        await team.pause()
        await team.resume()
    assert calls == [("one", "pause"), ("two", "pause"), ("one", "resume"), ("two", "resume")]


@pytest.mark.parametrize(
    ("participants", "kwargs"),
    [
        ([], {}),
        ([CountingAgent(), CountingAgent()], {}),
        ([CountingAgent()], {"max_turns": 0}),
        ([CountingAgent("RoundRobinGroupChatManager")], {}),
    ],
)
def test_a_team_that_cannot_work_is_refused_at_once(participants, kwargs):
    with pytest.raises(ValueError, match=r"participant|max_turns"):
        Team(participants, **kwargs)


# Saved state


@pytest.mark.parametrize(("saver", "loader"), [(Team, Team), (Team, RoundRobinGroupChat), (RoundRobinGroupChat, Team)])
async def test_a_saved_state_goes_on_elsewhere_in_autogens_form(executor, saver, loader):
    def team(make, *script):
        model = ScriptedModel(script)
        agents = [coder(model), CodeExecutorAgent("executor", executor, sources=["coder"])]
        return make(agents, max_turns=1), model

    first, _ = team(saver, PRINT_42)
    await first.run(task="six times seven")
    second, model = team(loader, "It is 42.")
    await second.load_state(await first.save_state())
    assert texts_of(await second.run()) == [("executor", "42\n")]
    assert texts_of(await second.run()) == [("coder", "It is 42.")]
    assert [words for _, words in model.told[0]][1:] == ["six times seven", PRINT_42, "42\n"]


async def test_a_state_of_another_team_is_refused_and_nothing_is_loaded():
    team = Team([CountingAgent()], max_turns=1)
    with pytest.raises(ValueError, match="counting"):
        await team.load_state(await Team([CountingAgent("other")]).save_state())
    assert texts_of(await team.run(task="go")) == [("user", "go"), ("counting", "heard 1")]


# Teams of teams


@pytest.mark.parametrize("outer", [Team, RoundRobinGroupChat])
async def test_team_in_a_team(executor, outer):
    model = ScriptedModel([PRINT_42, "It is 42. TERMINATE"])
    inner = Team(
        [coder(model), CodeExecutorAgent("executor", executor, sources=["coder"])],
        name="makers",
        termination_condition=FinalWordTermination(),
    )
    team = outer([inner, CountingAgent()], max_turns=2)
    assert texts_of(await team.run(task="six times seven")) == [
        ("user", "six times seven"),
        ("coder", PRINT_42),
        ("executor", "42\n"),
        ("coder", "It is 42. TERMINATE"),
        ("counting", "heard 4"),
    ]


async def test_a_failure_three_teams_deep_comes_out_as_it_is_and_is_undone(tidy):
    error = NoQuotaLeft("none left")
    scripted, counting = ScriptedAgent([]), CountingAgent()
    team = Team([counting, scripted], name="a", max_turns=2)
    for name in "bc":
        team = Team([team], name=name, max_turns=1)
    await team.run(task="one")
    scripted.script = [error]

    async with asyncio.timeout(20):
        with pytest.raises(NoQuotaLeft) as caught:
            await team.run(task="two")

    assert caught.value is error
    assert others() == set()
    assert counting.heard == [["one"]]  # the whole turn of team `b` has not happened
    assert texts_of(await team.run()) == [("counting", "heard 2"), ("scripted", "heard 2")]
    assert scripted.heard == [["one", "heard 1"], ["two", "heard 2"]]


@pytest.mark.parametrize("participant", [SleepingAgent, UncancellableAgent])
async def test_cancelling_a_team_two_teams_deep_ends_in_under_a_second(participant, caplog):
    deep = participant()
    team = Team([Team([deep], name="inner", max_turns=1)], name="outer", max_turns=1)
    await cut_short(team, deep)
    warned = [record.getMessage() for record in caplog.records if record.name.startswith("autogen_codeact")]
    assert len(warned) == (1 if participant is UncancellableAgent else 0)
    if participant is UncancellableAgent:
        deep.let_go.set()
    assert texts_of(await team.run(task="two")) == [("user", "two"), (deep.name, "heard 2")]
    assert others() == set()


# Event loops and Ctrl-C


def test_one_team_in_several_event_loops():
    counting = CountingAgent()
    team = Team([counting, CountingAgent("other")], max_turns=1)
    assert texts_of(asyncio.run(team.run(task="one"))) == [("user", "one"), ("counting", "heard 1")]
    assert texts_of(asyncio.run(team.run(task="two"))) == [("user", "two"), ("other", "heard 3")]
    assert texts_of(asyncio.run(team.run())) == [("counting", "heard 2")]


def test_ctrl_c_ends_the_run_and_the_team_goes_on_in_the_next_loop():
    sleeping = SleepingAgent()
    team = Team([sleeping, CountingAgent()], max_turns=2)

    async def interrupted():
        async with asyncio.timeout(20):
            asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
            await team.run(task="one")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    assert not sleeping.finished
    assert texts_of(asyncio.run(team.run(task="two"))) == [
        ("user", "two"),
        ("sleeping", "heard 2"),
        ("counting", "heard 3"),
    ]


async def test_close_closes_the_others_when_one_fails():
    class Broken(CountingAgent):
        async def close(self):
            raise RuntimeError("can't close")

    closed = []

    class Closed(CountingAgent):
        async def close(self):
            closed.append(self.name)

    with pytest.raises(RuntimeError, match="can't close"):
        await Team([Broken("a"), Closed("b"), Closed("c")]).close()
    assert closed == ["b", "c"]


async def test_a_state_that_a_participant_refuses_with_any_exception_changes_nothing():
    class Refusing(CountingAgent):
        async def load_state(self, state):
            raise RuntimeError("not mine")

    first = CountingAgent("a")
    team = Team([first, Refusing("b")], max_turns=1)
    state = json.loads(json.dumps(await team.save_state()))
    state["agent_states"]["a"]["agent_state"] = {"heard": [["other"]]}
    with pytest.raises(RuntimeError, match="not mine"):
        await team.load_state(state)
    assert first.heard == []


async def test_a_state_with_turns_below_zero_is_refused():
    team = Team([CountingAgent()], max_turns=1)
    state = json.loads(json.dumps(await team.save_state()))
    state["agent_states"]["RoundRobinGroupChatManager"]["current_turn"] = -5
    with pytest.raises(ValueError, match="current_turn is below 0"):
        await team.load_state(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speakers": "selector"}, "speakers= takes a policy such as RoundRobin() or Handoff(), not 'selector'."),
        ({"budget": 5}, "budget= takes a Budget, such as Budget(max_tokens=5000), not 5."),
    ],
)
def test_speakers_and_budget_of_another_type_are_refused(options, message):
    with pytest.raises(TypeError) as refused:
        Team([CountingAgent()], **options)
    assert str(refused.value) == message
