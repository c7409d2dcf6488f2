"""Approvals that wait: a run ends with its question, and goes on with the answer."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.teams import DiGraphBuilder
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse, CodeActAgent
from autogen_codeact.batch import Task
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, Later, ToolApproval
from autogen_codeact.executors.tools.later import NO_LOG
from autogen_codeact.runs import AlreadyAnsweredError, RunError, RunWaiting, list_runs, recorded, resume, resumed
from autogen_codeact.runs.answers import ANSWERS, digest
from autogen_codeact.runs.events import QuestionAnswered, QuestionAsked
from autogen_codeact.runs.plan import answered, make_plan
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.teams import Graph, Team
from autogen_codeact.teams.loading import check_untrusted
from tests.agents.codeact import python
from tests.batch.support import rows_of
from tests.runs.support import events_of, types_of
from tests.viewer.test_server import asking

FIRST, SECOND = "x = 6\nprint('first')", "final_answer(x * 7)"


def agent(executor: Any, *answers: str, name: str = "coder", **options: Any) -> CodeActAgent:
    client = ReplayChatCompletionClient(list(answers))
    return CodeActAgent(name, executor, model_client=client, describe_environment=False, **options)


async def test_code_is_asked_about_again_if_the_process_was_killed_while_a_function_was_asked(
    bubblewrap: None, tmp_path: Path
) -> None:
    folder, killed = tmp_path / "run", tmp_path / "killed"
    asked = []

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        asked.append(request.code)
        if not killed.exists():
            shutil.copytree(folder, killed)  # the log as a process leaves it that is killed now
        return ApprovalResponse(approved=True, reason="")

    for path, answers in ((folder, [python("final_answer(42)")]), (killed, [])):
        async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
            target = agent(executor, *answers, approval_func=approve)
            stream = recorded(target, task="Go.", path=path) if answers else resumed(path, agent=target)
            assert [item async for item in stream][-1].messages[-1].to_text() == "42"
        assert types_of(path, "block") == ["block_started coder 1", "block_finished coder 1"]
    assert asked == ["```python\nfinal_answer(42)\n```"] * 2


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


PRESS = """
import pathlib, sys
from autogen_codeact.runs import AlreadyAnsweredError
from autogen_codeact.runs.plan import answered, make_plan
from autogen_codeact.runs.store import EVENTS
plan = make_plan(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
try:
    print("first", answered(plan, {"q1": sys.argv[2] == "True"}).questions[0].answer.approved)
except AlreadyAnsweredError as error:
    print("other", error)
"""


def answers_of_processes(folder: Path) -> list[tuple[str, str, str]]:
    """Answer in four processes at once; return what came of each: "first" or "other", and the rest."""
    started = [
        subprocess.Popen([sys.executable, "-c", PRESS, folder, str(yes)], stdin=-1, stdout=-1, text=True)
        for yes in (True, False) * 2
    ]
    assert [each.stdout.readline() for each in started if each.stdout] == ["ready\n"] * 4
    for each in started:
        print(file=each.stdin, flush=True)
    return sorted(each.communicate(timeout=60)[0].strip().partition(" ") for each in started)


async def test_first_answer_counts_and_only_to_questions_that_were_asked(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await waiting(agent(executor, python(FIRST), "done", approval_func=Later()), folder)
    with pytest.raises(RunError, match=r"has no question 'q2'; it waits for q1\.$"):
        await resume(folder, decisions={"q2": True})
    said = answers_of_processes(folder)
    assert [kind for kind, _, _ in said] == ["first", "other", "other", "other"]
    was = "approved" if said[0][2] == "True" else "denied"
    assert {re.sub(r"at .* UTC", "at TIME UTC", text) for _, _, text in said[1:]} == {
        f"q1 was {was} before, at TIME UTC: the first answer counts. `codeact resume` without an answer goes on with the run."
    }
    with pytest.raises(AlreadyAnsweredError):
        await resume(folder, decisions={"q1": True})


async def test_answer_that_this_user_has_not_written_is_refused(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await waiting(agent(executor, python(FIRST), "done", approval_func=Later()), folder)
    question = make_plan(folder).questions[0].asked
    (folder / "answers").mkdir()
    answer = QuestionAnswered(question="q1", sha256=question.sha256, approved=True)
    (folder / "answers" / "q1.json").write_text(answer.model_dump_json())
    with pytest.raises(RunError, match=r"q1\.json is damaged, or you did not write it on this machine: remove it"):
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


async def test_agents_at_the_same_time_ask_at_the_same_time(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def make(executor: Any, *, resumed: bool) -> Team:
        agents = [
            agent(executor, *replies, name=name, approval_func=Later())
            for name, replies in {"a": ["Go."], "b": [python("b = 1"), "b."], "c": [python("c = 2"), "c."]}.items()
        ]
        graph = DiGraphBuilder()
        for each in agents:
            graph.add_node(each)
        graph.add_edge("a", "b").add_edge("a", "c")
        for each in agents[1:] if resumed else []:
            each.model_client.chat_completions = [f"{each.name}."]
        return Team(agents, speakers=Graph(graph.build()), max_turns=2)

    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        asked = await waiting(make(executor, resumed=False), folder)
        assert {text.split("\n")[2] for text in asked.questions.values()} == {"b = 1", "c = 2"}
        plan = make_plan(folder)
        of_b = next(each.asked.question for each in plan.questions if each.asked.agent == "b")
        of_c = next(each.asked.question for each in plan.questions if each.asked.agent == "c")
        with pytest.raises(RunWaiting) as left:
            await resume(folder, agent=make(executor, resumed=True), decisions={of_b: True})
        assert list(left.value.questions) == [of_c]
        result = await resume(folder, agent=make(executor, resumed=True), decisions={of_c: "no"})
    assert {each.to_text() for each in result.messages if each.type == "TextMessage"} >= {"b.", "c."}
    started = [event.agent for event in events_of(folder) if event.type == "block_started"]
    assert sorted(started) == ["b", "c"]


async def test_without_the_log_of_a_run_nothing_can_wait() -> None:
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        with pytest.raises(RuntimeError, match=re.escape(NO_LOG)):
            await agent(executor, python(FIRST), approval_func=Later()).run(task="Go.")


def test_policy_is_in_the_configuration_of_an_agent_also_of_an_untrusted_one() -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    made = agent(executor, "Hi.", approval_func=Later(), approve_tool=Later())
    config = made.dump_component().model_dump()
    later = {"provider": "autogen_codeact.executors.Later", "component_type": "tool_policy", "config": {}}
    dumped = {name: config["config"][name] for name in ("approval_func", "approve_tool")}
    assert {name: {key: part[key] for key in later} for name, part in dumped.items()} == dict.fromkeys(dumped, later)
    assert check_untrusted(config)["config"]["approval_func"]["provider"] == later["provider"]
    assert isinstance(CodeActAgent.load_component(config)._options.approval_func, Later)


async def test_batch_has_a_row_that_waits_and_goes_on_after_the_answer(bubblewrap: None, tmp_path: Path) -> None:
    def make(executor: Any) -> CodeActAgent:
        return agent(executor, python("final_answer(42)"), approval_func=Later())

    def rows() -> Any:
        return rows_of(make, [Task(id="one", task="Go.")], tmp_path / "out")

    for _ in range(2):
        (row,) = await rows()
        assert (row.outcome, row.steps, row.model_calls, row.passed) == ("waiting", 0, 1, None)
        assert "q1: may coder run this code?" in row.error
    answered(make_plan(tmp_path / "out" / row.log), {"q1": True})
    (row,) = await rows()
    assert (row.outcome, row.answer, row.steps, row.model_calls) == ("completed", "42", 1, 1)
    assert await rows() == []


async def test_page_of_a_waiting_run_answers_its_question(bubblewrap: None, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await waiting(agent(executor, python(FIRST), "done", approval_func=Later()), folder)
    async with asking(tmp_path / "runs") as client:
        changes = (await client.get("/api/runs/one/changes")).json()
        assert (changes["header"]["outcome"], changes["header"]["controls"]) == ("waiting", True)
        (question,) = changes["questions"]
        assert (question["kind"], question["agent"]) == ("code", "coder")
        assert question["text"] == f"```python\n{FIRST}\n```"
        origin = {"Origin": str(client.base_url).split("/", 3)[0] + "//" + client.base_url.netloc.decode()}

        async def approve() -> int:
            body = {"question": question["id"], "approve": True}
            return int((await client.post("/api/runs/one/answer", json=body, headers=origin)).status_code)

        log = (folder / EVENTS).read_text()
        events = [json.loads(line) for line in log.splitlines()]
        asked = next(event for event in events if event["type"] == "question_asked")
        asked |= {"text": "other()", "sha256": digest(None, "other()")}
        (folder / EVENTS).write_text("".join(f"{json.dumps(event)}\n" for event in events))
        changes = (await client.get("/api/runs/one/changes")).json()
        assert changes["questions"][0]["text"] == "other()"
        assert await approve() == 409  # the page still shows what was asked first
        assert not (folder / ANSWERS).exists()
        (folder / EVENTS).write_text(log)
        assert [await approve() for _ in range(2)] == [200, 409]
        assert (await client.get("/api/runs/one/changes")).json()["questions"] == []
    assert (await resume(folder)).messages[-1].to_text() == "done"


async def test_answer_about_the_code_of_a_step_is_none_about_code_of_an_agent_in_its_tool(
    bubblewrap: None, tmp_path: Path
) -> None:
    async with (
        BubblewrapCommandLineCodeExecutor(mode="session") as inner,
        BubblewrapCommandLineCodeExecutor(mode="session") as outer,
    ):
        helper = agent(inner, python("print('inner ran')"), "inner", name="helper", approval_func=Later())

        async def ask_helper() -> str:
            """Ask."""
            return (await helper.run(task="Go.")).messages[-1].to_text()

        code = "try:\n    print(ask_helper())\nexcept Exception as error:\n    print(error)"
        folder = tmp_path / "run"
        target = agent(outer, python(code), "end", tools=[ask_helper], approval_func=Later())
        await waiting(target, folder)
        result = await resume(folder, agent=target, decisions={"q1": True})
    assert NO_LOG in result.messages[2].to_text()
