"""Continuing a turn of `CodeExecutorAgent` between its answer, its code, the decision to repair it and the reflection."""

import json

import pytest

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import resume
from tests.agents.codeact import python
from tests.agents.support import decision, scripted
from tests.runs.example_run import counted, counting_tool
from tests.runs.support import cut, lines_of, listed, run

ANSWERS = [python("triple(1)\nraise SystemExit(3)"), decision(True), python("print(triple(2))"), "It is 6."]
STEPS = ("model_call_started", "model_call_finished", "block_started", "host_call_started", "host_call_finished")


def make_agent(executor, calls, answers):
    return CodeExecutorAgent(
        "actor",
        executor,
        model_client=scripted(*answers),
        max_retries_on_error=1,
        tools=[counting_tool(calls)],
        describe_environment=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["session", "process"])
@pytest.mark.timeout(300)
async def test_turn_continues_after_each_of_its_steps(bubblewrap: None, tmp_path, mode):
    whole = tmp_path / "whole"
    async with BubblewrapCommandLineCodeExecutor(mode=mode) as executor:
        agent = make_agent(executor, tmp_path / "calls", ANSWERS)
        messages = (await run(agent, whole))[-1].messages
    assert messages[-1].to_text() == "It is 6."
    assert counted(tmp_path / "calls") == [1, 2]
    types = [json.loads(line)["type"] for line in lines_of(whole)]
    assert [kind for kind in types if kind in ("model_call_finished", "block_finished")] == listed(
        "model_call_finished, block_finished, model_call_finished, model_call_finished, block_finished, "
        "model_call_finished"
    )
    for number, kind in enumerate(types, 1):
        if kind not in (*STEPS, "block_finished"):
            continue
        folder, calls = cut(whole, tmp_path / f"run-{number}", number), tmp_path / f"calls-{number}"
        answered = types[:number].count("model_call_finished")
        made = types[:number].count("host_call_started")
        async with BubblewrapCommandLineCodeExecutor(mode=mode) as executor:
            result = await resume(folder, agent=make_agent(executor, calls, ANSWERS[answered:]))
        assert [type(each) for each in result.messages] == [type(each) for each in messages], (number, kind)
        assert result.messages[-1].to_text() == "It is 6.", (number, kind)
        # Code under way is not run again, so its call is missing if it had not begun.
        begun = types[:number].count("block_started")
        assert counted(calls) == [1, 2][max(made, begun) :], (number, kind)
