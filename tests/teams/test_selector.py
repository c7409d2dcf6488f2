"""A model chooses who speaks next: as in AutoGen's `SelectorGroupChat`, and where it differs."""

import json

import pytest
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.teams import Selector, Team
from autogen_codeact.teams.speakers import SelectionError, SpeakerError

from .compare import agents, models, outcome, received
from .support import CountingAgent, NoQuotaLeft, ScriptedModel, texts_of

PROMPT = "Roles:\n{roles}\nHistory:\n{history}\nChoose from {participants}."
SCRIPTS = {name: [f"{name[0]}{number}" for number in range(1, 9)] for name in ("ann", "bob_b", "cy")}


def ours(clients, **kwargs):
    team = {name: kwargs.pop(name) for name in ("emit_team_events",) if name in kwargs}
    return Team(
        agents(clients, "ann", "bob_b", "cy"),
        termination_condition=MaxMessageTermination(5),
        speakers=Selector(clients["selector"], prompt=PROMPT, **kwargs),
        **team,
    )


def theirs(clients, *, allow_repeated=False, **kwargs):
    return SelectorGroupChat(
        agents(clients, "ann", "bob_b", "cy"),
        clients["selector"],
        termination_condition=MaxMessageTermination(5),
        selector_prompt=PROMPT,
        allow_repeated_speaker=allow_repeated,
        **kwargs,
    )


@pytest.mark.parametrize(
    ("choices", "options"),
    [
        (["ann", "bob_b", "ann", "cy", "bob_b", "ann", "cy", "bob_b", "ann"], {}),
        (["bob b.", "It is ann's turn: **ann**", "bob\\_b", "cy", "ann", "bob_b", "ann", "cy", "ann"], {}),
        (["cy", "cy", "ann", "ann", "bob_b", "bob_b", "bob_b", "ann", "ann"], {"allow_repeated": True}),
        (["ann"] * 8, {"candidate_func": lambda thread: [["ann"], ["bob_b"], ["cy"]][len(thread) % 3]}),
    ],
)
async def test_selector_gives_the_same_messages_as_that_of_autogen(choices, options):
    scripts = {**SCRIPTS, "selector": choices}
    tasks = ["go", None]
    mine = await outcome(lambda clients: ours(clients, **options, emit_team_events=True), scripts, tasks)
    assert mine == await outcome(lambda clients: theirs(clients, **options, emit_team_events=True), scripts, tasks)


@pytest.mark.parametrize(
    "answer",
    [
        *("Bob_B", "**bob b**", "`BOB-B`", '"bob\\_b".', "The next speaker is Bob B!", "bobb"),
        "<think>ann or cy</think>\nbob_b",
        "<think>ann</think><think>cy</think> Bob B",
        "ann could, but cy is better. No.\n</think>\n\nbob_b",
    ],
)
async def test_name_is_found_in_another_form_and_not_in_thoughts(answer):
    client = models(selector=[answer], **SCRIPTS)
    result = await Team(
        agents(client, "ann", "bob_b", "cy"), speakers=Selector(client["selector"], prompt=PROMPT), max_turns=1
    ).run(task="go")
    assert result.messages[-1].source == "bob_b"


@pytest.mark.parametrize("answer", ["bob", "ann_b", "anna", "Ann or Cy"])
async def test_name_that_is_not_unique_is_asked_for_again(answer):
    client = models(selector=[answer, "cy"], **SCRIPTS)
    result = await Team(
        agents(client, "ann", "bob_b", "cy"), speakers=Selector(client["selector"], prompt=PROMPT), max_turns=1
    ).run(task="go")
    assert (result.messages[-1].source, len(received(client)["selector"])) == ("cy", 2)


async def test_an_answer_that_names_nobody_or_two_is_sent_back_and_the_third_counts():
    scripts = {**SCRIPTS, "selector": ["nobody", "ann and cy", "cy", "cy", "ann", "bob_b", "ann"]}
    mine = await outcome(ours, scripts, ["go"])
    assert mine[:2] == (await outcome(theirs, scripts, ["go"]))[:2]
    first, second, third, *_ = mine[2]["selector"]
    assert [len(first), len(second), len(third)] == [1, 3, 5]
    candidates = "['ann', 'bob_b', 'cy']"
    asked = [message.content for message in third if isinstance(message, UserMessage)][-2:]
    assert asked == [
        f"That names no participant. Answer with exactly one of {candidates}.",
        f"That names ann and cy. Answer with exactly one of {candidates}.",
    ]


async def test_three_answers_that_name_nobody_are_a_typed_error_and_the_next_run_asks_again():
    clients = models(**SCRIPTS, selector=["x", "y", "z" * 300, "ann", "bob_b", "cy", "ann", "cy"])
    team = ours(clients)
    with pytest.raises(SelectionError, match=r"named none of ann, bob_b, cy in 3 answers.*'z{200}'.*prompt="):
        await team.run(task="go")
    assert texts_of(await team.run())[0] == ("ann", "a1")


@pytest.mark.parametrize("found", [[], ["dora"], None])
async def test_candidates_that_are_no_participants_are_a_typed_error(found):
    async def candidates(thread):
        return found

    team = ours(models(**SCRIPTS, selector=[]), candidate_func=candidates)
    with pytest.raises(SpeakerError, match=r"candidate_func returned .*; return at least one of the participants ann"):
        await team.run(task="go")


async def test_a_choice_whose_turn_is_interrupted_is_made_again():
    selector = ReplayChatCompletionClient(["bob", "ann", "bob"])
    bob = ScriptedModel([NoQuotaLeft(), "b1"])
    clients = {"ann": ReplayChatCompletionClient(["a1"]), "bob": bob}
    team = Team(agents(clients, "ann", "bob"), max_turns=2, speakers=Selector(selector))
    with pytest.raises(NoQuotaLeft):
        await team.run(task="go")
    assert texts_of(await team.run(task="please")) == [("user", "please"), ("ann", "a1"), ("bob", "b1")]


async def test_a_state_goes_on_in_autogens_selector_and_back():
    scripts = {**SCRIPTS, "selector": ["bob_b", "ann", "cy", "ann"]}
    first, second = models(**scripts), models(**scripts)
    mine, other = ours(first), theirs(second)
    await mine.run(task="go")
    await other.run(task="go")
    state, their_state = json.loads(json.dumps(await mine.save_state())), await other.save_state()
    name = "SelectorGroupChatManager"
    assert state["agent_states"][name]["previous_speaker"] == "ann"
    assert state["agent_states"][name].keys() == their_state["agent_states"][name].keys()
    for loader, saved in ((theirs, state), (ours, their_state)):
        clients = models(**SCRIPTS, selector=["ann", "cy", "bob_b", "ann", "bob_b", "cy"])  # ann spoke last
        team = loader(clients)
        await team.load_state(saved)
        assert [source for source, _ in texts_of(await team.run())][:2] == ["cy", "bob_b"]


def test_selector_is_dumped_and_loaded_and_functions_are_refused_by_name():
    clients = {name: ReplayChatCompletionClient(["ann"]) for name in (*SCRIPTS, "selector")}
    team = ours(clients, allow_repeated=True)
    text = team.dump_component().model_dump_json()
    loaded = BaseTeam.load_component(json.loads(text))
    assert type(loaded) is Team
    assert loaded.dump_component().model_dump_json() == text
    assert loaded.dump_component().config["speakers"]["config"]["prompt"] == PROMPT
    with pytest.raises(ValueError, match="candidate_func can't be dumped"):
        ours(clients, candidate_func=lambda thread: ["ann"]).dump_component()


def test_a_selector_that_cannot_work_is_refused_at_once():
    with pytest.raises(SpeakerError, match="at least two participants"):
        Team([CountingAgent()], speakers=Selector(ReplayChatCompletionClient([])))
    with pytest.raises(ValueError, match="roles, participants and history"):
        Selector(ReplayChatCompletionClient([]), prompt="{who}")


@pytest.mark.parametrize("from_config", [False, True])
async def test_closing_the_team_closes_a_model_that_came_from_its_config(from_config, monkeypatch):
    closed = []

    async def close(client):
        closed.append(client)

    monkeypatch.setattr(ReplayChatCompletionClient, "close", close)
    clients = {name: ReplayChatCompletionClient(["ann"]) for name in (*SCRIPTS, "selector")}
    team = ours(clients)
    if from_config:
        team = BaseTeam.load_component(team.dump_component())
    await team.close()
    assert closed == ([team.speakers._model_client] if from_config else [])
