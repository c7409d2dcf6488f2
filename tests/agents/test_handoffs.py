"""Handoffs: code calls a function, and the agent's answer is a message that hands the task over."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import BaseChatMessage, CodeExecutionEvent, HandoffMessage, TextMessage
from autogen_agentchat.teams import Swarm
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import (
    AssistantMessage,
    LLMMessage,
    UserMessage,
)

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.codeact_prompt import HANDOFFS
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Handoff as HandoffSpeakers
from autogen_codeact.teams import Team
from tests.agents.codeact import comparable, from_agent, python
from tests.agents.support import model_answer, plain, received_by, scripted

DEFAULT = "Transferred to bob, adopting the role of bob immediately."
SILENT = (
    "The script ran but produced no output to console. The POSIX exit code was: 0. "
    "If you were expecting output, consider revising the script to ensure content is printed to stdout."
)
DONE = "The task was handed over to bob."


def actor(executor: CodeExecutor, *answers: Any, handoffs: Any = ("bob", "carol"), **options: Any) -> CodeActAgent:
    return CodeActAgent("actor", executor, model_client=scripted(*answers), handoffs=handoffs, **options)


def handed_over(
    content: str, target: str = "bob", *, step: int = 1, context: Sequence[LLMMessage] = (), name: str = ""
) -> dict[str, Any]:
    metadata = {"steps": str(step), "answered_by": name or f"transfer_to_{target}"}
    return plain(
        HandoffMessage(content=content, target=target, source="actor", context=list(context), metadata=metadata)
    )


def last_told(agent: CodeActAgent) -> LLMMessage:
    return received_by(agent.model_client)[-1][-1]  # type: ignore[arg-type]


def results(messages: Any) -> list[ExecutionResult]:
    return [message.result for message in messages if isinstance(message, CodeExecutionEvent)]


@pytest.mark.parametrize(
    ("call", "content"),
    [
        ("transfer_to_bob()", DEFAULT),
        ("transfer_to_bob('Please check x.')", "Please check x."),
        ("transfer_to_bob(message=6 * 7)", "42"),
        ("transfer_to_bob(' ')", DEFAULT),
    ],
)
async def test_a_transfer_ends_the_code_and_the_turn(session: SandboxCodeExecutor, call: str, content: str) -> None:
    first, second = python(f"x = 5\n{call}\nx = 6"), python("x = 7")
    agent = actor(session, f"{first}\n{second}", python("print(x)"), "5.")
    result = await agent.run(task="Go.")
    assert comparable(result.messages[-1:]) == [handed_over(content)]
    assert (await agent.model_context.get_messages())[-1] == from_agent(f"{SILENT}\n\n{DONE}")
    assert HandoffMessage in agent.produced_message_types
    result = await agent.run(task="And x?")
    assert (results(result.messages)[0].output, result.messages[-1].to_text()) == ("5\n", "5.")


async def test_a_transfer_counts_also_if_its_block_breaks_the_sandbox(session: SandboxCodeExecutor) -> None:
    breaks = (
        "import os, signal\ntry:\n    transfer_to_bob('Now.')\nfinally:\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n    os._exit(1)"
    )
    result = await actor(session, python(breaks)).run(task="Go.")
    assert isinstance(result.messages[-1], HandoffMessage)
    assert result.messages[-1].content == "Now."
    assert [each.outcome for each in results(result.messages)] == ["crashed"]


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        ("final_answer(2)", "transfer_to_bob()", TextMessage),
        ("transfer_to_bob()", "final_answer(2)", HandoffMessage),
        ("transfer_to_bob()", "transfer_to_carol()", HandoffMessage),
    ],
)
async def test_the_first_answer_or_transfer_of_a_block_counts(
    session: SandboxCodeExecutor, first: str, second: str, counts: type[BaseChatMessage]
) -> None:
    agent = actor(session, python(f"try:\n    {first}\nfinally:\n    {second}"))
    result = await agent.run(task="Go.")
    assert isinstance(result.messages[-1], counts)
    assert "ValueError: the turn has ended already" in results(result.messages)[0].output


async def test_wrong_arguments_are_errors_in_the_code(session: SandboxCodeExecutor) -> None:
    direct = "transfer_to_bob.__globals__['_call']('transfer_to_bob', {'message': 1})"
    agent = actor(session, python(direct), python("transfer_to_bob('a', 'b')"), "Sorry.")
    result = await agent.run(task="Go.")
    assert result.messages[-1].to_text() == "Sorry."
    assert "TypeError: transfer_to_bob takes one argument at most, the message" in results(result.messages)[0].output
    assert "TypeError: transfer_to_bob() takes" in results(result.messages)[1].output


async def test_next_agent_gets_what_the_code_printed_as_context(session: SandboxCodeExecutor) -> None:
    prints = python("print('x is 5')\ntransfer_to_bob('Check it.')")
    agent = actor(session, model_answer(prints, thought="Bob checks."))
    result = await agent.run(task="Go.")
    context = [
        AssistantMessage(content=prints, thought="Bob checks.", source="actor"),
        from_agent(f"x is 5\n\n{DONE}"),
    ]
    assert comparable(result.messages[-1:]) == [handed_over("Check it.", context=context)]
    # As AutoGen's AssistantAgent: a transfer alone passes on the thought, if there is one.
    alone = actor(session, model_answer(python("transfer_to_bob()"), thought="Bob can."), python("transfer_to_bob()"))
    thought = [AssistantMessage(content="Bob can.", source="actor")]
    assert comparable((await alone.run(task="Go.")).messages[-1:]) == [handed_over(DEFAULT, context=thought)]
    assert comparable((await alone.run(task="Go.")).messages[-1:]) == [handed_over(DEFAULT)]


async def test_prompt_describes_each_handoff(session: SandboxCodeExecutor) -> None:
    to_bob = Handoff(target="Bob", description="Bob knows about taxes.", message="Your turn.", name="ask_bob")
    agent = actor(session, python("ask_bob()"), handoffs=[to_bob, "carol"])
    result = await agent.run(task="Go.")
    assert comparable(result.messages[-1:]) == [handed_over("Your turn.", "Bob", name="ask_bob")]
    carol = "'Transferred to carol, adopting the role of carol immediately.'"
    expected = (
        f"{HANDOFFS}\n```python\n"
        "def ask_bob(message: str = 'Your turn.'):\n"
        '    """Bob knows about taxes."""\n\n'
        f"def transfer_to_carol(message: str = {carol}):\n"
        '    """Handoff to carol."""\n```'
    )
    assert expected in str(received_by(agent.model_client)[0][0].content)  # type: ignore[arg-type]


async def test_agents_of_one_session_have_their_own_handoffs(session: SandboxCodeExecutor) -> None:
    mine = Handoff(target="bob", message="From actor.")
    one = actor(session, python("transfer_to_bob()"), handoffs=[mine])
    two = actor(session, python("transfer_to_carol()"), python("transfer_to_bob()"), handoffs=["bob"])
    three = actor(session, python("transfer_to_carol()"), handoffs=["carol"])
    assert (await one.run(task="Go.")).messages[-1].to_text() == "From actor."
    result = await two.run(task="Go.")
    assert result.messages[-1].to_text() == DEFAULT
    assert "ValueError: the agent that runs this code can't hand over to carol" in results(result.messages)[0].output
    assert comparable((await three.run(task="Go.")).messages[-1:]) == [
        handed_over("Transferred to carol, adopting the role of carol immediately.", "carol")
    ]


def transfer_to_bob() -> str:
    """A tool."""
    return "no"


def bubblewrap_executor(**options: Any) -> BubblewrapCommandLineCodeExecutor:
    return BubblewrapCommandLineCodeExecutor(mode="session", **options)


@pytest.mark.parametrize("own", [True, False], ids=["agent", "executor"])
def test_handoff_with_the_name_of_a_tool_is_refused(own: bool, bubblewrap: None) -> None:
    executor = bubblewrap_executor() if own else bubblewrap_executor(tools=[transfer_to_bob])
    message = r"^The handoff to bob and a host tool are both called `transfer_to_bob`: rename the tool, or use Handoff\(target="
    with pytest.raises(ValueError, match=message):
        actor(executor, tools=[transfer_to_bob] if own else [])


@pytest.mark.parametrize(
    ("handoffs", "error", "message"),
    [
        (["tax office"], ValueError, "can't be a function called `transfer_to_tax office`"),
        ([Handoff(target="bob", name="print")], ValueError, "can't be a function called `print`"),
        ([Handoff(target="bob", name="_bob")], ValueError, "can't be a function called `_bob`"),
        ([Handoff(target="bob", name="final_answer")], ValueError, "both called `final_answer`"),
        ([""], ValueError, "A handoff needs a target, the name of an agent."),
        (["bob", "Bob"], ValueError, r"Two handoffs have the same name \(transfer_to_bob\)"),
        ("bob", TypeError, "handoffs must be a list, not 'bob'"),
        ([7], TypeError, "handoffs must hold names of agents and Handoff objects, not a int"),
    ],
)
def test_invalid_handoffs_are_refused(bubblewrap: None, handoffs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        actor(bubblewrap_executor(), handoffs=handoffs)


async def test_executor_without_host_tools_has_no_handoffs(executor: CodeExecutor) -> None:
    with pytest.raises(ValueError, match=r"can't call host tools: .* or omit tools, approve_tool and handoffs"):
        actor(executor)


async def test_state_after_a_transfer_rebuilds_the_session_without_handing_over(session: SandboxCodeExecutor) -> None:
    agent = actor(session, python("x = 5\ntransfer_to_bob()"))
    await agent.run(task="Go.")
    state = await agent.save_state()
    async with bubblewrap_executor(timeout=20) as other:
        twin = actor(other, python("print(x)"), "5.")
        await twin.load_state(json.loads(json.dumps(state)))
        result = await twin.run(task="And x?")
    assert [message.result.output for message in result.messages if isinstance(message, CodeExecutionEvent)][
        -1
    ] == "5\n"
    assert result.messages[-1].to_text() == "5."


@pytest.mark.parametrize("kind", [Swarm, partial(Team, speakers=HandoffSpeakers())], ids=["Swarm", "Team"])
async def test_two_agents_hand_over_to_each_other(session: SandboxCodeExecutor, kind: Any) -> None:
    work = python("x = 40\nprint('x is there')\ntransfer_to_checker('Is x right?')")
    back = python("print(x)\nx += 2\ntransfer_to_worker('Add it up.')")
    worker = CodeActAgent(
        "worker", session, model_client=scripted(work, python("final_answer(x)")), handoffs=["checker"]
    )
    checker = CodeActAgent("checker", session, model_client=scripted(back), handoffs=["worker"])
    team = kind([worker, checker], termination_condition=TextMentionTermination("42"))

    result = await team.run(task="Count.")

    spoken = [message for message in result.messages if isinstance(message, BaseChatMessage)]
    assert [(message.source, type(message), message.to_text()) for message in spoken] == [
        ("user", TextMessage, "Count."),
        ("worker", HandoffMessage, "Is x right?"),
        ("checker", HandoffMessage, "Add it up."),
        ("worker", TextMessage, "42"),
    ]
    assert received_by(checker.model_client)[0][1:] == [  # type: ignore[arg-type]
        UserMessage(content="Count.", source="user"),
        AssistantMessage(content=work, source="worker"),
        UserMessage(content="x is there\n\nThe task was handed over to checker.", source="worker"),
        UserMessage(content="Is x right?", source="worker"),
    ]
