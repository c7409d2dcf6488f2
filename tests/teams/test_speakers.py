"""What holds for all speaker policies, those of users included."""

import asyncio
import json
from typing import ClassVar

import pytest
from autogen_agentchat.teams import DiGraphBuilder
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.teams import Budget, Graph, Handoff, RefusedConfigError, Selector, Team, load_component
from autogen_codeact.teams.speakers import Position, SpeakerError, Speakers

from .support import CountingAgent, cancelled, coder, others, texts_of

pytestmark = pytest.mark.usefixtures("tidy")


class Countdown(Position):
    type: str = "Countdown"
    left: int = 3


class Backwards(Speakers[Countdown]):
    """A policy of a user's: from the last to the first, then both ends at once."""

    position = Countdown
    manager_name = "Backwards"
    wrong: ClassVar[dict[int, list[str]]] = {}

    def start(self, names):
        return Countdown(left=len(names))

    async def next(self, position, conversation):
        position.left -= 1
        await asyncio.sleep(0)
        names = [conversation.names[position.left]] if position.left >= 0 else [conversation.names[i] for i in (0, -1)]
        return self.wrong.get(position.left, names)


def team(**kwargs):
    return Team([CountingAgent("a"), CountingAgent("b"), CountingAgent("c")], speakers=Backwards(), **kwargs)


async def test_a_policy_of_a_users_own_chooses_and_its_position_is_saved():
    first = team(max_turns=2)
    assert [source for source, _ in texts_of(await first.run(task="go"))] == ["user", "c", "b"]
    state = json.loads(json.dumps(await first.save_state()))
    assert state["agent_states"]["Backwards"]["left"] == 1
    second = team(max_turns=2)
    await second.load_state(state)
    assert sorted(source for source, _ in texts_of(await second.run())) == ["a", "a", "c"]
    with pytest.raises(ValueError, match="it is of another team, without RoundRobinGroupChatManager"):
        await Team([CountingAgent("a"), CountingAgent("b"), CountingAgent("c")]).load_state(state)


@pytest.mark.parametrize("names", [[], ["nobody"], ["a", "a"]])
async def test_a_policy_that_names_no_participant_is_a_typed_error(names):
    class Wrong(Backwards):
        wrong: ClassVar = {1: names}

    wrong = Team([CountingAgent("a"), CountingAgent("b"), CountingAgent("c")], speakers=Wrong(), max_turns=9)
    with pytest.raises(SpeakerError, match=r"Wrong named .* as the next speakers; the participants are a, b, c"):
        await wrong.run(task="go")
    Wrong.wrong = {}
    assert [source for source, _ in texts_of(await wrong.run())][:2] == ["b", "a"]


async def test_cancelling_the_choice_of_a_speaker_undoes_it():
    begun = asyncio.Event()

    class Slow(Backwards):
        async def next(self, position, conversation):
            names = await super().next(position, conversation)
            if not begun.is_set():
                begun.set()
                await asyncio.sleep(3600)
            return names

    slow = Team([CountingAgent("a"), CountingAgent("b")], speakers=Slow(), max_turns=1)
    run = asyncio.create_task(slow.run(task="go"))
    await begun.wait()
    assert isinstance(await cancelled(run), asyncio.CancelledError)
    assert others() == set()
    assert texts_of(await slow.run()) == [("b", "heard 1")]


def diamond():
    parts = {name: CountingAgent(name) for name in "abcd"}
    builder = DiGraphBuilder()
    for part in parts.values():
        builder.add_node(part)
    builder.add_edge(parts["a"], parts["b"]).add_edge(parts["a"], parts["c"])
    builder.add_edge(parts["b"], parts["d"]).add_edge(parts["c"], parts["d"])
    return Team([*parts.values()], speakers=Graph(builder.build())), parts


@pytest.mark.parametrize("steps", range(1, 60, 3))
async def test_no_message_is_lost_or_repeated_whenever_a_graph_is_cancelled(steps):
    graph, parts = diamond()
    run = asyncio.create_task(graph.run(task="one"))
    for _ in range(steps):
        await asyncio.sleep(0)
    await cancelled(run)
    assert others() == set()
    result = await graph.run(task="two")
    assert result.stop_reason == "Digraph execution is complete"
    assert texts_of(result)[-1][0] == "d"
    for part in parts.values():
        heard = [words for turn in part.heard for words in turn]
        assert heard.count("one") == 1
        assert heard.count("two") <= 1  # who had its turn does not speak again
    assert [words for turn in parts["d"].heard for words in turn].count("two") == 1


# Configuration


def config(**speakers):
    model = ReplayChatCompletionClient([])
    dumped = json.loads(Team([coder(model), coder(model, "other")], max_turns=2).dump_component().model_dump_json())
    dumped["config"]["speakers"] = speakers
    return dumped


def test_policies_of_an_untrusted_configuration_are_loaded():
    graph, _ = diamond()
    participants = [coder(ReplayChatCompletionClient([]), name) for name in "abcd"]
    for speakers in (graph.speakers, Selector(ReplayChatCompletionClient([])), None):
        source = Team(participants, speakers=speakers, budget=Budget(max_seconds=5)).dump_component()
        assert type(load_component(source.model_dump_json())) is Team
    assert type(load_component(config(**Handoff().dump_component().model_dump()), trusted=False)) is Team


def test_a_prompt_that_takes_all_memory_is_refused_in_an_untrusted_configuration():
    dumped = Selector(ReplayChatCompletionClient([])).dump_component().model_dump()
    dumped["config"]["prompt"] = "{history:>9999999999}"
    with pytest.raises(RefusedConfigError) as caught:
        load_component(config(**dumped))
    assert caught.value.refused[0].startswith("config.speakers.config.prompt: may contain plain {name} fields only")
