"""Approvals that wait: a run ends with its question, and goes on with the answer."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, Later, ToolApproval
from autogen_codeact.runs import AlreadyAnsweredError, RunError, RunWaiting, list_runs, recorded, resume
from autogen_codeact.runs.answers import Answer
from autogen_codeact.runs.events import QuestionAnswered, QuestionAsked
from autogen_codeact.runs.plan import Plan, answered, make_plan
from tests.agents.codeact import python
from tests.runs.support import events_of, types_of

FIRST, SECOND = "x = 6\nprint('first')", "final_answer(x * 7)"


def agent(executor: Any, *answers: str, name: str = "coder", **options: Any) -> CodeActAgent:
    client = ReplayChatCompletionClient(list(answers))
    return CodeActAgent(name, executor, model_client=client, describe_environment=False, **options)


async def waiting(target: ChatAgent | BaseTeam, folder: Path) -> RunWaiting:
    with pytest.raises(RunWaiting) as error:
        async for _ in recorded(target, task="Go.", path=folder):
            pass
    return error.value


async def test_code_waits_between_steps_and_the_run_goes_on_with_each_answer(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        asked = await waiting(agent(executor, python(FIRST), python(SECOND), approval_func=Later()), folder)
    assert asked.questions == {"q1": f"q1: may coder run this code?\n```python\n{FIRST}\n```"}
    assert str(asked) == (
        f"{folder} waits for an answer:\nq1: may coder run this code?\n```python\n{FIRST}\n```\n"
        f"`codeact resume {folder} --approve` or `--deny REASON` answers, and the run goes on."
    )
    assert types_of(folder, "block") == []
    (summary,) = list_runs(folder)
    assert summary.outcome == "waiting"
    with pytest.raises(RunWaiting):
        await resume(folder)
    with pytest.raises(RunWaiting) as again:
        await resume(folder, decisions={"q1": True})
    assert list(again.value.questions) == ["q2"]
    result = await resume(folder, decisions={"q2": True})
    assert result.messages[-1].to_text() == "42"
    events = events_of(folder)
    assert [type(each) for each in events if isinstance(each, QuestionAsked | QuestionAnswered)] == [
        QuestionAsked,
        QuestionAnswered,
    ] * 2
    assert types_of(folder, "block_started") == ["block_started coder 1", "block_started coder 2"]


async def test_denied_code_does_not_run_and_the_model_gets_the_reason(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await waiting(agent(executor, python(FIRST), "It may not run.", approval_func=Later()), folder)
    result = await resume(folder, decisions={"q1": "too early"})
    assert [each.to_text() for each in result.messages[2:]] == [
        "Code execution was not approved. Reason: the person said no: too early",
        "It may not run.",
    ]


async def test_first_answer_counts_and_only_to_questions_that_were_asked(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await waiting(agent(executor, python(FIRST), "done", approval_func=Later()), folder)
    with pytest.raises(RunError, match="has no question 'q2'; it waits for q1.$"):
        await resume(folder, decisions={"q2": True})
    plan = make_plan(folder)
    pressed = [asyncio.to_thread(answered, plan, {"q1": approved}) for approved in (True, False) * 4]
    first, *others = sorted(
        await asyncio.gather(*pressed, return_exceptions=True), key=lambda each: not isinstance(each, Plan)
    )
    assert isinstance(first, Plan)
    said = "approved" if first.questions[0].answer.approved else "denied"
    assert {re.sub(r"at .* UTC", "at TIME UTC", str(each)) for each in others} == {
        f"q1 was {said} before, at TIME UTC: the first answer counts. `codeact resume` without an answer goes on with the run."
    }
    with pytest.raises(AlreadyAnsweredError):
        await resume(folder, decisions={"q1": True})


async def test_answer_that_this_user_has_not_written_is_refused(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await waiting(agent(executor, python(FIRST), "done", approval_func=Later()), folder)
    question = make_plan(folder).questions[0].asked
    (folder / "answers").mkdir()
    answer = Answer(question="q1", sha256=question.sha256, approved=True)
    (folder / "answers" / "q1.json").write_text(answer.model_dump_json())
    with pytest.raises(RunError, match="q1.json is damaged, or you did not write it on this machine: remove it"):
        await resume(folder)


@pytest.mark.parametrize("approved", [True, False])
async def test_call_waits_the_block_is_over_and_the_approved_call_is_made_once(
    bubblewrap: None, tmp_path: Path, approved: bool
) -> None:
    folder, sent = tmp_path / "run", []

    def look() -> int:
        """Look."""
        return 1

    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    async def ask_about_send(request: Any) -> Any:
        return await Later()(request) if request.name == "send" else ToolApproval(True)

    code = python("n = look()\ntry:\n    print(send(to='ann'))\nexcept Exception as error:\n    print(error)")

    def make(executor: Any, *answers: str) -> CodeActAgent:
        return agent(executor, *answers, tools=[look, send], approve_tool=ask_about_send)

    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        asked = await waiting(make(executor, code), folder)
    assert asked.questions == {"q1": 'q1: may coder call send with these arguments?\n{\n  "to": "ann"\n}'}
    answers = [python("print(send(to='ann'))\nprint(send(to='ann'))"), "end"] if approved else ["end"]
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        if approved:
            with pytest.raises(RunWaiting) as second:
                await resume(folder, agent=make(executor, *answers), decisions={"q1": True})
            assert list(second.value.questions) == ["q2"]
            assert sent == ["ann"]
        else:
            await resume(folder, agent=make(executor, *answers), decisions={"q1": "no"})
            assert sent == []
    told = (folder / "events.jsonl").read_text()
    assert "It is approved now: it may be made once" in told or not approved
    assert "It was not approved: no." in told or approved
    started = [json.loads(line) for line in told.splitlines() if '"block_started"' in line]
    assert len(started) == (2 if approved else 1)
