"""Participants hand over: as in AutoGen's `Swarm`, and where it differs."""

import json

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import Swarm
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.teams import Handoff, Team
from autogen_codeact.teams.speakers import HandoffTargetError, SpeakerError

from .compare import bare
from .support import CountingAgent, texts_of

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": ModelFamily.UNKNOWN,
    "structured_output": False,
}


def transfer(target):
    """A model's answer that hands over."""
    call = FunctionCall(id="1", name=f"transfer_to_{target}", arguments="{}")
    usage = RequestUsage(prompt_tokens=3, completion_tokens=2)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)


def agent(name, script, *targets):
    return AssistantAgent(name, ReplayChatCompletionClient(script, model_info=INFO), handoffs=list(targets))


def trio():
    return [
        agent("ann", [transfer("bob"), "ann again", transfer("cy")], "bob", "cy"),
        agent("bob", ["b1", transfer("user"), transfer("ann")], "ann", "user"),
        agent("cy", ["c1", "DONE"], "ann"),
    ]


async def conversation(team):
    results = [await team.run(task="go")]
    back = HandoffMessage(source="user", target="bob", content="My answer.")
    results.append(await team.run(task=back))
    return [bare(result) for result in results], [result.stop_reason for result in results]


async def test_handoffs_give_the_same_messages_as_the_swarm_of_autogen():
    condition = HandoffTermination("user") | TextMentionTermination("DONE") | MaxMessageTermination(30)
    mine = await conversation(Team(trio(), termination_condition=condition, speakers=Handoff(), emit_team_events=True))
    theirs = await conversation(Swarm(trio(), termination_condition=condition, emit_team_events=True))
    assert mine == theirs
    assert mine[1][0] == "Handoff to user from bob detected."


async def test_a_handoff_to_nobody_is_a_typed_error_that_says_what_to_change():
    team = Team([agent("ann", [transfer("bob"), "a2"], "bob"), agent("cy", [], "ann")], speakers=Handoff())
    with pytest.raises(HandoffTargetError, match=r"'ann' handed over to 'bob', but the participants are ann, cy"):
        await team.run(task="go")
    with pytest.raises(HandoffTargetError, match="HandoffTermination"):
        await team.run(task="on")
    with pytest.raises(HandoffTargetError, match="'user' handed over to 'dora'"):
        await team.run(task=HandoffMessage(source="user", target="dora", content="x"))
    stream = team.run_stream(task=HandoffMessage(source="user", target="ann", content="x"))
    assert [(await anext(stream)).to_text() for _ in range(2)] == ["x", "a2"]
    await stream.aclose()
    state = await team.save_state()
    thread = state["agent_states"]["SwarmGroupChatManager"]["message_thread"]
    assert [message["content"] for message in thread if message["source"] == "user"] == ["go", "x"]  # none refused


async def test_a_nested_team_hands_over_and_its_inner_handoffs_stay_inside():
    inner = Team(
        [agent("x", [transfer("y")], "y"), agent("y", [transfer("ann")], "ann")],
        name="inner",
        termination_condition=HandoffTermination("ann"),
        speakers=Handoff(),
    )
    team = Team(
        [inner, agent("ann", ["DONE"], "x")], speakers=Handoff(), termination_condition=TextMentionTermination("DONE")
    )
    result = await team.run(task="go")
    assert [(m.source, m.target) for m in result.messages if isinstance(m, HandoffMessage)] == [
        ("x", "y"),
        ("y", "ann"),
    ]
    assert texts_of(result)[-1] == ("ann", "DONE")


class Passing(BaseChatAgent):
    """Hands over to whom it is told, with the last words."""

    def __init__(self, name, to):
        super().__init__(name, "Hands over.")
        self.to = to

    produced_message_types = (HandoffMessage, TextMessage)

    async def on_messages(self, messages, cancellation_token):
        return Response(chat_message=HandoffMessage(source=self.name, target=self.to, content=f"to {self.to}"))

    async def on_reset(self, cancellation_token):
        """Nothing to forget."""


async def test_a_state_goes_on_in_autogens_swarm_and_back():
    def make(team_class, **kwargs):
        return team_class([Passing("a", "b"), Passing("b", "c"), Passing("c", "a")], max_turns=2, **kwargs)

    mine, theirs = make(Team, speakers=Handoff()), make(Swarm)
    await mine.run(task="go")
    await theirs.run(task="go")
    state, other = json.loads(json.dumps(await mine.save_state())), await theirs.save_state()
    assert state["agent_states"].keys() == other["agent_states"].keys()
    assert state["agent_states"]["SwarmGroupChatManager"]["current_speaker"] == "b"
    second, third = make(Swarm), make(Team, speakers=Handoff())
    await second.load_state(state)
    await third.load_state(other)
    assert texts_of(await second.run()) == texts_of(await third.run()) == [("c", "to a"), ("a", "to b")]


def test_a_first_participant_that_cannot_hand_over_is_refused_at_once():
    with pytest.raises(SpeakerError, match=r"'counting' begins and can't hand over: give it handoffs="):
        Team([CountingAgent(), *trio()], speakers=Handoff())
