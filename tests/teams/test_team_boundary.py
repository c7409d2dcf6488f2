"""What a team gives at the boundary between two turns, and going on from there in another process."""

import asyncio
import json

import pytest
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import ThoughtEvent

from autogen_codeact.teams import Team

from .support import (
    CountingAgent,
    NoQuotaLeft,
    ScriptedAgent,
    Stateless,
    texts_of,
)

pytestmark = pytest.mark.usefixtures("tidy")


class Noting(MaxMessageTermination):
    """Notes in which batches it was given the messages."""

    def __init__(self, most: int = 5) -> None:
        super().__init__(most)
        self.batches: list[list[str]] = []

    async def __call__(self, messages):
        self.batches.append([message.to_text() for message in messages])
        return await super().__call__(messages)


def trio(**kwargs):
    thought = ThoughtEvent(content="hm", source="scripted")
    condition = Noting()
    inner = Team([CountingAgent("deep")], name="inner", max_turns=2)
    participants = [CountingAgent(), ScriptedAgent([thought]), inner]
    return Team(participants, termination_condition=condition, emit_team_events=True, **kwargs), condition


def noting(team, path):
    """Keep what is given at the boundaries as JSON, as a log does."""

    async def keep(state):
        path.append(json.dumps(state))

    team.on_boundary = keep


async def test_a_boundary_is_before_each_turn_and_after_what_was_read():
    order = []
    team, _ = trio()

    async def keep(state):
        order.append("boundary")

    team.on_boundary = keep
    async for event in team.run_stream(task="go"):
        await asyncio.sleep(0)
        order.append(event.source if not isinstance(event, TaskResult) else "result")
    manager = "RoundRobinGroupChatManager"
    assert order == [
        "user",
        *("boundary", manager, "counting"),
        *("boundary", manager, "scripted", "scripted"),
        *("boundary", manager, "deep", "deep"),
        "result",
    ]


@pytest.mark.parametrize("boundary", range(3))
async def test_a_run_goes_on_from_each_boundary_with_the_same_messages_and_batches(boundary):
    states = []
    team, condition = trio()
    noting(team, states)
    whole = await team.run(task="go")

    again, other = trio()
    if boundary == 2:
        again.participants[1].script.clear()  # it was said before
    later = []
    noting(again, later)
    events = [event async for event in again.continue_stream(json.loads(states[boundary]))]
    result = events[-1]

    assert texts_of(result) == texts_of(whole)
    assert result.stop_reason == whole.stop_reason
    assert other.batches == condition.batches
    assert texts_of(TaskResult(messages=events[:-1])) == texts_of(whole)[-len(events[:-1]) :]
    assert len(events[:-1]) == [8, 6, 3][boundary]
    assert len(later) == len(states) - boundary
    assert texts_of(await again.run()) == texts_of(await team.run())


async def test_a_participant_that_cannot_save_its_state_does_not_end_the_run():
    states = []
    team = Team([Stateless(), CountingAgent()], max_turns=2)
    team.participants[0].begun.set()  # then it does not wait
    noting(team, states)
    assert texts_of(await team.run(task="go")) == [("user", "go"), ("sleeping", "heard 1"), ("counting", "heard 2")]
    assert json.loads(states[1])["agent_states"]["sleeping"]["agent_state"] == {}


async def test_what_a_boundary_raises_ends_the_run_and_the_turn_has_not_begun():
    counting = CountingAgent()
    team = Team([counting], max_turns=1)

    async def fails(state):
        raise NoQuotaLeft("no space")

    team.on_boundary = fails
    with pytest.raises(NoQuotaLeft, match="no space"):
        await team.run(task="go")
    assert counting.heard == []
    team.on_boundary = None
    assert texts_of(await team.run()) == [("counting", "heard 1")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": {"batches": [7]}}, "batches has more messages than the thread"),
        ({"run": {"batches": [-1]}}, "batches has more messages than the thread"),
        ({"run": {"messages": ["nobody's id"]}}, "there is no .nobody's id"),
        ({"run": {"messages": [{"type": "NoSuchMessage"}]}}, "NoSuchMessage"),
        ({"run": {"used": {"tokens": -1}}}, "used.tokens: "),
    ],
)
async def test_an_invalid_boundary_is_refused_and_nothing_has_changed(change, words):
    states = []
    team = Team([CountingAgent()], max_turns=1)
    noting(team, states)
    await team.run(task="go")
    before = await team.save_state()
    with pytest.raises(ValueError, match=words):
        await anext(team.continue_stream({**json.loads(states[0]), **change}))
    assert await team.save_state() == before
