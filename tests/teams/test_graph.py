"""Edges determine who speaks: as in AutoGen's `GraphFlow`, and where it differs."""

import asyncio
import json

import pytest
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import DiGraph, GraphFlow
from autogen_agentchat.teams._group_chat._graph._digraph_group_chat import DiGraphEdge, DiGraphNode
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.teams import Budget, Graph, Team
from autogen_codeact.teams.speakers import GraphError

from .compare import agents, bare, models, received
from .support import (
    CountingAgent,
    NoQuotaLeft,
    ScriptedAgent,
    ScriptedModel,
    SleepingAgent,
    coder,
    others,
    texts_of,
)

NAMES = ("a", "b", "c", "d")


def graph(*edges, start=None, **nodes):
    """A graph from "a -> b" or "a -yes-> b"; keyword arguments of an edge come from `group=` and `join=` of a tuple."""
    made = {name: DiGraphNode(name=name) for name in NAMES}
    for edge in edges:
        text, options = (edge, {}) if isinstance(edge, str) else edge
        source, _, target = text.partition(" -")
        condition, _, target = target.partition("> ")
        made[source].edges.append(DiGraphEdge(target=target, condition=condition.rstrip("-") or None, **options))
    used = {edge.target for node in made.values() for edge in node.edges} | {n for n in made if made[n].edges}
    return DiGraph(nodes={name: node for name, node in made.items() if name in used}, default_start_node=start)


ANY = {"activation_condition": "any"}
GRAPHS = {
    "chain": (graph("a -> b", "b -> c"), {}),
    "fan out and join of all": (graph("a -> b", "a -> c", "b -> d", "c -> d"), {}),
    "fan out and join of any": (graph("a -> b", "a -> c", ("b -> d", ANY), ("c -> d", ANY)), {}),
    "two starts": (graph("a -> c", "b -> c", "c -> d"), {}),
    "branch": (graph("a -yes-> b", "a -no-> c"), {"a": ["no", "yes"]}),
    "branch without a match": (graph("a -yes-> b", "a -no-> c"), {"a": ["perhaps", "yes"]}),
    "cycle": (
        graph("a -> b", ("b -again-> a", {"activation_group": "back"}), "b -done-> c", start="a"),
        {"b": ["again", "again", "done", "done"]},
    ),
    "cycle through a join": (
        graph(
            "a -> b",
            ("b -> c", {"activation_group": "first"}),
            ("c -again-> b", {"activation_group": "back", "activation_condition": "any"}),
            "c -done-> d",
            start="a",
        ),
        {"c": ["again", "again", "done", "done"]},
    ),
    "fan out that ends": (graph("a -> b", "a -> c", "a -> d"), {}),
}


def scripts(changed):
    return {name: changed.get(name, [f"{name}{number}" for number in range(1, 5)]) for name in NAMES}


TOGETHER = {
    "two starts": "ab",
    "fan out that ends": "bcd",
    **dict.fromkeys(GRAPHS.keys() & {"fan out and join of all", "fan out and join of any"}, "bc"),
}
"""Who speaks at the same time, in any order."""


def sets(messages, together=""):
    """The messages in order, those of one fan-out in the order of their speakers."""
    ordered, group = [], []
    for message in [*messages, {"source": ""}]:
        if message["source"] in tuple(together):
            group.append(message)
        else:
            ordered += [*sorted(group, key=lambda each: each["source"]), message]
            group = []
    return ordered


def received_sets(clients):
    return {
        name: [sorted(str(message) for message in call) for call in calls] for name, calls in received(clients).items()
    }


async def outcome(make, changed, tasks, together=""):
    clients = models(**scripts(changed))
    team = make(agents(clients, *NAMES))
    results = [await team.run(task=task) for task in tasks]
    return (
        [sets(bare(result), together) for result in results],
        [r.stop_reason for r in results],
        received_sets(clients),
    )


@pytest.mark.parametrize("name", GRAPHS)
async def test_graph_gives_the_same_messages_as_the_graph_of_autogen(name):
    plan, changed = GRAPHS[name]
    tasks = ["go", "go on"] if "cycle" not in name else ["go"]
    stop = MaxMessageTermination(30)

    def ours(participants):
        return Team(participants, speakers=Graph(plan), termination_condition=stop)

    def theirs(participants):
        return GraphFlow(participants, plan, termination_condition=stop)

    together = TOGETHER.get(name, "")
    mine = await outcome(ours, changed, tasks, together)
    assert mine == await outcome(theirs, changed, tasks, together)
    assert mine[1] == ["Digraph execution is complete"] * len(tasks)


async def test_the_order_of_a_fan_out_is_that_of_the_graph_however_long_each_takes():
    first = asyncio.Event()

    class Last(CountingAgent):
        async def on_messages(self, messages, cancellation_token):
            await first.wait()
            return await super().on_messages(messages, cancellation_token)

    class First(CountingAgent):
        async def on_messages(self, messages, cancellation_token):
            first.set()
            return await super().on_messages(messages, cancellation_token)

    d = CountingAgent("d")
    team = Team([CountingAgent("a"), Last("b"), First("c"), d], speakers=Graph(GRAPHS["fan out and join of all"][0]))
    assert [source for source, _ in texts_of(await team.run(task="go"))] == ["user", "a", "c", "b", "d"]
    assert d.heard == [["go", "heard 1", "heard 2", "heard 2"]]
    state = await team.save_state()
    sources = [message["source"] for message in state["agent_states"]["GraphManager"]["message_thread"]]
    assert sources == ["user", "a", "b", "c", "d"]


async def test_a_failure_in_a_fan_out_ends_the_others_and_the_whole_fan_out_has_not_happened(tidy):
    error = NoQuotaLeft("none left")
    sleeping, scripted = SleepingAgent("b"), ScriptedAgent([error], "c")
    team = Team(
        [CountingAgent("a"), sleeping, scripted, CountingAgent("d")],
        speakers=Graph(GRAPHS["fan out and join of all"][0]),
    )
    with pytest.raises(NoQuotaLeft) as caught:
        await team.run(task="go")
    assert caught.value is error
    assert others() == set()
    assert sleeping.heard == scripted.heard == []
    assert sorted(texts_of(await team.run())) == [("b", "heard 2"), ("c", "heard 2"), ("d", "heard 4")]


async def test_a_condition_that_raises_ends_the_run_and_the_turn_is_repeated(tidy):
    broken = [NoQuotaLeft("no judge")]

    def judge(message):
        if broken:
            raise broken.pop()
        return True

    plan = graph("a -> b")
    plan.nodes["a"].edges[0] = DiGraphEdge(target="b", condition=judge)
    a = CountingAgent("a")
    team = Team([a, CountingAgent("b")], speakers=Graph(plan))
    with pytest.raises(NoQuotaLeft, match="no judge"):
        await team.run(task="go")
    assert a.heard == []
    assert texts_of(await team.run()) == [("a", "heard 1"), ("b", "heard 2")]
    with pytest.raises(ValueError, match=r"The condition of the edge a -> b can't be dumped"):
        Team([coder(ScriptedModel([]), "a"), coder(ScriptedModel([]), "b")], speakers=Graph(plan)).dump_component()


# State and configuration


@pytest.mark.parametrize("name", ["fan out and join of all", "cycle", "cycle through a join"])
@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_saved_state_goes_on_as_the_team_itself_does(name, turns):
    plan, changed = GRAPHS[name]

    def make():
        return Team(agents(models(**scripts(changed)), *NAMES), speakers=Graph(plan), max_turns=turns)

    team, other = make(), make()
    first = await team.run(task="go")
    if first.stop_reason == "Digraph execution is complete":
        return
    await other.load_state(json.loads(json.dumps(await team.save_state())))
    for mine, others_ in zip(team.participants, other.participants, strict=True):
        others_._model_client._current_index = mine._model_client._current_index
    together = TOGETHER.get(name, "")
    assert sets(bare(await other.run()), together) == sets(bare(await team.run()), together)


async def test_a_state_goes_on_in_autogens_graph_and_back():
    plan, _ = GRAPHS["chain"]
    team = Team([CountingAgent(name) for name in NAMES], speakers=Graph(plan), max_turns=1)
    flow = GraphFlow([CountingAgent(name) for name in NAMES], plan, max_turns=1)
    await team.run(task="go")
    await flow.run(task="go")
    second = GraphFlow([CountingAgent(name) for name in NAMES], plan, max_turns=1)
    third = Team([CountingAgent(name) for name in NAMES], speakers=Graph(plan), max_turns=1)
    await second.load_state(json.loads(json.dumps(await team.save_state())))
    await third.load_state(await flow.save_state())
    assert texts_of(await second.run()) == texts_of(await third.run()) == [("b", "heard 2")]


async def test_the_state_of_another_graph_is_refused():
    one = Team([CountingAgent(name) for name in NAMES], speakers=Graph(GRAPHS["chain"][0]))
    two = Team([CountingAgent(name) for name in NAMES], speakers=Graph(GRAPHS["cycle"][0]), max_turns=9)
    with pytest.raises(ValueError, match=r"it is the position of another graph"):
        await two.load_state(await one.save_state())
    with pytest.raises(ValueError, match="it is of another team, without GraphManager"):
        await two.load_state(await Team([CountingAgent(name) for name in NAMES]).save_state())


def test_graph_is_dumped_and_loaded():
    plan, _ = GRAPHS["cycle through a join"]
    team = Team(
        [coder(ReplayChatCompletionClient([]), name) for name in NAMES],
        speakers=Graph(plan),
        budget=Budget(max_turns=9),
    )
    text = team.dump_component().model_dump_json()
    loaded = BaseTeam.load_component(json.loads(text))
    assert loaded.dump_component().model_dump_json() == text
    assert type(loaded.speakers) is Graph


# Bad input


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (DiGraph(nodes={}), "no nodes"),
        (graph("a -> b", start="nobody"), "default_start_node 'nobody' is not a node"),
        (graph("a -> b", "b -> a"), "start node"),
        (graph("a -> b", "b -> a", start="a"), "leaf node"),
        (
            graph("a -> b", "b -> a", "c -> d", start="a"),
            "Cycle detected without exit condition: a -> b -> a",
        ),
        (graph("a -> b", "a -yes-> c"), "mix of conditional and unconditional"),
        (DiGraph(nodes={"a": DiGraphNode(name="a", edges=[DiGraphEdge(target="z")])}), "a -> z leads to no node"),
    ],
)
def test_a_graph_that_cannot_work_is_a_typed_error_that_says_what_to_change(plan, words):
    with pytest.raises(GraphError, match=words):
        Graph(plan)


def test_a_graph_that_does_not_fit_its_team_is_a_typed_error():
    with pytest.raises(GraphError, match="No participant is called 'c'"):
        Team([CountingAgent("a"), CountingAgent("b")], speakers=Graph(GRAPHS["chain"][0]))
    cycle = Graph(GRAPHS["cycle"][0])
    participants = [CountingAgent(name) for name in NAMES]
    with pytest.raises(GraphError, match=r"cycle, .* termination_condition, max_turns or a budget"):
        Team(participants, speakers=cycle)
    for bound in (
        {"max_turns": 3},
        {"budget": Budget(max_tokens=3)},
        {"termination_condition": TextMentionTermination("x")},
    ):
        Team(participants, speakers=cycle, **bound)
