"""Parts that are not ours: AutoGen's agent that runs code, and the models that choose the speakers of teams."""

import warnings

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.agents import CodeExecutorAgent as AutoGenAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core.code_executor import CodeExecutor, CodeResult

from autogen_codeact.agents import ApprovalResponse
from autogen_codeact.runs import load_run, resumed
from autogen_codeact.teams import Selector, Team
from tests.agents.codeact import python
from tests.agents.support import scripted

from .support import cut, lines_of, listed, run, types_of


class Counter(CodeExecutor):
    """An executor that notes what it runs."""

    def __init__(self, ran):
        self.ran = ran

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        self.ran += [block.code for block in code_blocks]
        return CodeResult(0, f"run {len(self.ran)}")

    async def start(self): ...

    async def stop(self): ...

    async def restart(self): ...


def coder(ran, answers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of code without approval
        return AutoGenAgent("coder", Counter(ran), model_client=scripted(*answers), approval_func=allow)


def allow(request):
    return ApprovalResponse(approved=True, reason="")


async def test_code_of_autogens_agent_is_logged_and_not_run_again(tmp_path):
    answers = [python("first()"), "Done."]
    ran = []
    await run(coder(ran, answers), tmp_path / "run")
    assert types_of(tmp_path / "run", "model", "block") == listed(
        "model_call_started coder 1, model_call_finished coder 1, block_started coder 1, block_finished coder 1, "
        "model_call_started coder 2, model_call_finished coder 2"
    )
    for number in range(2, len(lines_of(tmp_path / "run"))):
        folder = cut(tmp_path / "run", tmp_path / f"run-{number}", number)
        types = [event.type for event in load_run(folder)]
        started, answered = types.count("block_started"), types.count("model_call_finished")
        again = []
        items = [item async for item in resumed(folder, agent=coder(again, answers[answered:]))]
        assert items[-1].messages[-1].to_text() == "Done.", number
        assert started + len(again) == 1, number


def our_team(selector, **answers):
    agents = [AssistantAgent(name, scripted(*given)) for name, given in answers.items()]
    return Team(agents, speakers=Selector(scripted(*selector)), termination_condition=MaxMessageTermination(3))


def autogens_team(selector, **answers):
    agents = [AssistantAgent(name, scripted(*given)) for name, given in answers.items()]
    return SelectorGroupChat(agents, scripted(*selector), termination_condition=MaxMessageTermination(3))


@pytest.mark.parametrize("make", [our_team, autogens_team])
async def test_choices_of_speakers_are_not_requested_again(tmp_path, make):
    await run(make(["b", "a"], a=["From a."], b=["From b."], c=[]), tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    last = max(number for number, line in enumerate(lines) if b'"model_call_finished"' in line)
    cut(tmp_path / "run", tmp_path / "again", last)
    # The choice was made: only the second speaker is asked again.
    items = [item async for item in resumed(tmp_path / "again", agent=make([], a=["From a."], b=[], c=[]))]
    assert [message.to_text() for message in items[-1].messages] == ["Go.", "From b.", "From a."]
