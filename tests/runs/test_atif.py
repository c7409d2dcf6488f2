"""Runs as trajectories: each is checked with the models of the format, and has what the models read and wrote."""

import io
import json

from atif import Trajectory
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.runs import load_run
from autogen_codeact.runs.atif import export_atif
from autogen_codeact.runs.events import AgentInfo, ConversationReset
from autogen_codeact.teams import Team
from tests.agents.codeact import python
from tests.agents.support import decision, model_answer, scripted
from tests.runs.logs import lines, started, whole_run, write_log

from .support import run

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}
SYSTEM = "You solve the user's task by acting in code, step by step, until it is done."


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def exported(folder):
    """The trajectory of a run, as the models of the format read it, without times."""
    export_atif(load_run(folder), file := io.StringIO())
    data = json.loads(file.getvalue())
    Trajectory.model_validate(data)
    return data


def shown(trajectory):
    """The steps in short: who, what was said, the code, and what was observed."""
    return [
        (
            step["source"],
            step["message"].splitlines()[0] if step["message"] else "",
            [call["arguments"].get("code", call["arguments"]) for call in step.get("tool_calls", ())],
            [each.get("content") for each in step.get("observation", {}).get("results", ())],
        )
        for step in trajectory["steps"]
    ]


async def test_a_run_of_one_agent_is_one_trajectory(session, tmp_path):
    model = scripted(python("x = add(1, 2)\nx"), python("1 / 0"), "3.")
    await run(CodeActAgent("actor", session, model_client=model, tools=[add]), tmp_path / "run")
    trajectory = exported(tmp_path / "run")
    assert trajectory["schema_version"] == "ATIF-v1.7"
    failed = trajectory["steps"][3]["observation"]["results"][0]["content"]
    assert failed.startswith("The script ran, then exited with an error")
    assert shown(trajectory) == [
        ("system", SYSTEM, [], []),
        ("user", "Go.", [], []),
        ("agent", "```python", ["x = add(1, 2)\nx\n"], ["3\n"]),
        ("agent", "```python", ["1 / 0\n"], [failed]),
        ("agent", "3.", [], []),
    ]
    (result,) = trajectory["steps"][2]["observation"]["results"]
    call = {"name": "add", "arguments": {"a": 1, "b": 2}, "outcome": "ok", "result": 3}
    duration = result["extra"].pop("duration_s")
    assert duration > 0
    assert result["extra"] == {"exit_code": 0, "outcome": "ok", "host_calls": [call]}
    assert trajectory["final_metrics"] == {"total_prompt_tokens": 0, "total_completion_tokens": 3, "total_steps": 5}
    assert "notes" not in trajectory


async def test_a_decision_to_try_again_is_a_step(session, tmp_path):
    model = scripted(python("1 / 0"), decision(True), python("print(1)"), "One.", json_output=True)
    await run(CodeExecutorAgent("coder", session, model_client=model, max_retries_on_error=1), tmp_path / "run")
    steps = shown(exported(tmp_path / "run"))
    assert [(source, code) for source, _, code, _ in steps if code] == [
        ("agent", ["1 / 0\n"]),
        ("agent", ["print(1)\n"]),
    ]
    assert [text for source, text, *_ in steps if source == "agent"] == [
        "```python",
        decision(True),
        "```python",
        "One.",
    ]
    assert [text for source, text, *_ in steps if source == "user"] == ["Go."]


async def test_agents_of_a_team_have_trajectories_of_their_own(session, tmp_path):
    call = FunctionCall(id="c1", name="add", arguments='{"a": 2, "b": 2}')
    asks = CreateResult(finish_reason="function_calls", content=[call], usage=RequestUsage(7, 2), cached=False)
    model = ReplayChatCompletionClient([asks, model_answer("Fine.")], INFO)
    critic = AssistantAgent("critic", model, tools=[add], reflect_on_tool_use=True)
    coder = CodeActAgent("coder", session, model_client=scripted(python("print(add(1, 2))"), "3."), tools=[add])
    runner = CodeExecutorAgent("runner", session)
    await run(Team([coder, critic, runner], max_turns=3), tmp_path / "run")
    trajectory = exported(tmp_path / "run")
    assert [(step["source"], step["message"]) for step in trajectory["steps"][:3]] == [
        ("user", "Go."),
        ("agent", "3."),
        ("agent", "Fine."),
    ]
    refs = [step["observation"]["results"][0]["subagent_trajectory_ref"] for step in trajectory["steps"][1:3]]
    assert refs == [[{"trajectory_id": "coder"}], [{"trajectory_id": "critic"}]]
    inner = {each["trajectory_id"]: each for each in trajectory["subagent_trajectories"]}
    assert list(inner) == ["coder", "critic", "runner"]
    assert shown(inner["critic"])[-2:] == [("agent", "", [{"a": 2, "b": 2}], ["4"]), ("agent", "Fine.", [], [])]
    assert ("agent", "```python", ["print(add(1, 2))\n"], ["3\n"]) in shown(inner["coder"])
    assert trajectory["final_metrics"]["total_prompt_tokens"] == 7


def test_a_log_that_is_damaged_or_has_ended_early_is_exported_as_far_as_it_goes(tmp_path):
    first, *others = whole_run()[:5]
    first.agents = [AgentInfo(name="coder", kind="CodeActAgent")]
    written = lines([first, *others])
    damaged = [*written[:2], b"{}\n", *written[3:]]
    trajectory = exported(write_log(tmp_path / "damaged", damaged))
    assert shown(trajectory) == [("agent", "", ["print(6 * 7)\n"], [])]
    assert trajectory["notes"] == "Parts of the log that can not be read: 1."
    begun = started().model_copy(update={"task": None})
    assert shown(exported(write_log(tmp_path / "begun", lines([begun])))) == [
        ("system", "Nothing has happened in this run.", [], [])
    ]


def test_a_reset_of_a_conversation_is_told(tmp_path):
    changed = [started(), ConversationReset()]
    assert [text for _, text, *_ in shown(exported(write_log(tmp_path / "run", lines(changed))))] == [
        "What is 6*7?",
        "The user has started the conversation again.",
    ]
