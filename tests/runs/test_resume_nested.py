"""Continuing a team within a team, and what a run has used of its budget before."""

import json

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination

from autogen_codeact.runs import resume
from autogen_codeact.teams import Budget, Team
from tests.agents.support import scripted
from tests.runs.support import cut, lines_of, run

ANSWERS = {"ann": ["A1.", "A2."], "bob": ["B1.", "B2."], "cid": ["C1.", "C2."]}


def make_team(answers=ANSWERS, **options):
    """Two agents in a team that takes turns with a third one."""
    ann, bob, cid = (AssistantAgent(name, scripted(*given)) for name, given in answers.items())
    pair = Team([ann, bob], name="pair", max_turns=2)
    return Team([pair, cid], termination_condition=MaxMessageTermination(7), **options)


def texts(result):
    return [(message.source, message.to_text()) for message in result.messages]


async def test_team_in_a_team_continues_after_each_line(tmp_path):
    *_, whole = await run(make_team(), tmp_path / "whole")
    assert [text for _, text in texts(whole)] == ["Go.", "A1.", "B1.", "C1.", "A2.", "B2.", "C2."]
    events = [json.loads(line) for line in lines_of(tmp_path / "whole")]
    for number in range(2, len(events)):
        folder = cut(tmp_path / "whole", tmp_path / f"run-{number}", number)
        known = [event["agent"] for event in events[:number] if event["type"] == "model_call_finished"]
        left = {name: answers[known.count(name) :] for name, answers in ANSWERS.items()}
        result = await resume(folder, agent=make_team(left))
        assert texts(result) == texts(whole), number
        said = [json.loads(line) for line in lines_of(folder)]
        said = [event["message"]["content"] for event in said if event["type"] == "message"]
        assert said == ["Go.", "A1.", "B1.", "C1.", "A2.", "B2.", "C2."], number


async def test_budget_of_seconds_counts_the_time_before_the_interruption(tmp_path):
    folder = tmp_path / "run"
    await run(make_team(budget=Budget(max_seconds=100)), folder)
    lines = lines_of(folder)
    events = [json.loads(line) for line in lines]
    at = [event["message"]["content"] if event["type"] == "message" else None for event in events].index("C1.")
    late = {**events[at], "monotonic": events[at]["monotonic"] + 200}
    (folder / "events.jsonl").write_bytes(b"".join(lines[:at]) + json.dumps(late).encode() + b"\n")
    result = await resume(folder, agent=make_team(budget=Budget(max_seconds=100)))
    assert result.stop_reason == "The budget of 100 s is used up."
