"""The agent and functions of the host: its tools, and the call that gives the answer."""

from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import SystemMessage
from autogen_core.tools import FunctionTool

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.tool_prompt import TOOLS
from autogen_codeact.executors import AllowTools, BubblewrapCommandLineCodeExecutor, ExecutorPool, ToolApproval
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.result import ToolCall
from tests.agents.codeact import (
    answer_message,
    comparable,
    execution_event,
    from_agent,
    generation_event,
    model,
    python,
    user,
)
from tests.agents.support import received_by, scripted


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


def call(name: str, result: Any, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, "ok", result)


async def test_code_calls_functions_of_the_host(session: SandboxCodeExecutor) -> None:
    acts = python("print(multiply(add(5, 3), 2))")
    client = scripted(acts, "16.")
    agent = CodeActAgent("actor", session, model_client=client, tools=[add, multiply])

    result = await agent.run(task="Add 5 and 3, then double it.")

    event = result.messages[2]
    assert isinstance(event, CodeExecutionEvent)
    expected = execution_event(1, "16\n", tool_calls=(call("add", 8, a=5, b=3), call("multiply", 16, a=8, b=2)))
    assert comparable([event])[0]["result"] == expected["result"]
    tools = '```python\ndef add(a: int, b: int) -> int:\n    """Add two whole numbers."""\n\ndef multiply(a: int, b: int) -> int:'
    system = received_by(client)[0][0]
    assert isinstance(system, SystemMessage)
    assert tools in system.content
    assert received_by(client)[1][1:] == [user("Add 5 and 3, then double it."), model(acts), from_agent("16\n")]


async def test_a_call_gives_the_answer_and_ends_the_code(session: SandboxCodeExecutor) -> None:
    acts = python("total = sum(range(11))\nfinal_answer(total)\nprint('not reached')")
    client = scripted(acts + "\n" + python("print('nor is this')"))
    agent = CodeActAgent("actor", session, model_client=client)

    result = await agent.run(task="Sum up 1 to 10.")

    blocks = ["total = sum(range(11))\nfinal_answer(total)\nprint('not reached')\n", "print('nor is this')\n"]
    execution = execution_event(1, "", tool_calls=(call("final_answer", None, value=55),))
    events = comparable(result.messages[1:])
    assert events[0] == generation_event(1, acts + "\n" + python("print('nor is this')"), *blocks)
    assert events[1]["result"] == execution["result"]
    assert events[2] == answer_message("55", cost=None, steps="1", answered_by="final_answer")
    assert len(events) == 3


@pytest.mark.parametrize(
    "forgery",
    [
        "class FinalAnswerException(Exception): pass\nraise FinalAnswerException('forged')",
        'print(\'final_answer("forged")\')\nprint(\'{"name": "final_answer"}\')',
        "def final_answer(value): raise SystemExit\nfinal_answer('forged')",
        "raise SystemExit",
    ],
)
async def test_only_a_call_that_reached_the_host_is_an_answer(session: SandboxCodeExecutor, forgery: str) -> None:
    agent = CodeActAgent("actor", session, model_client=scripted(python(forgery), "The real one."))
    result = await agent.run(task="Go.")
    assert result.messages[-1].to_text() == "The real one."
    assert len(result.messages) == 4


async def test_final_answer_converts_values_to_json(session: SandboxCodeExecutor) -> None:
    code = (
        "import dataclasses, datetime, fractions\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: tuple\n"
        "final_answer({'p': Point(1, (2, 3)), 'd': datetime.date(2026, 1, 2), 'f': fractions.Fraction(1, 3), 4: {5}})"
    )
    agent = CodeActAgent("actor", session, model_client=scripted(python(code)))
    result = await agent.run(task="Go.")
    assert result.messages[-1].to_text() == '{"p": {"x": 1, "y": [2, 3]}, "d": "2026-01-02", "f": "1/3", "4": [5]}'


async def test_the_answer_needs_no_approval_of_tools(bubblewrap: None) -> None:
    async def refuse(request: Any) -> ToolApproval:
        return ToolApproval(False, "not today")

    async with BubblewrapCommandLineCodeExecutor(mode="session", approve_tool=refuse) as executor:
        code = "try:\n    add(1, 2)\nexcept PermissionError as error:\n    final_answer(str(error))"
        agent = CodeActAgent("actor", executor, model_client=scripted(python(code)), tools=[add])
        result = await agent.run(task="Go.")
    assert result.messages[-1].to_text() == "not today"


async def test_code_executor_agent_has_tools(session: SandboxCodeExecutor) -> None:
    client = scripted(python("print(add(5, 3))"), "8.")
    agent = CodeExecutorAgent("actor", session, model_client=client, tools=[FunctionTool(add, description="Adds.")])
    result = await agent.run(task="Add 5 and 3.")
    assert [m.result.output for m in result.messages if isinstance(m, CodeExecutionEvent)] == ["8\n"]
    assert str(received_by(client)[0][0].content).startswith(CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE)
    shown = f'{TOOLS}\n```python\ndef add(a: int, b: int) -> int:\n    """Adds.\n'
    assert shown in str(received_by(client)[0][0].content)


def test_tools_need_an_executor_that_has_them(executor: CodeExecutor) -> None:
    complaint = "Code in a LocalCommandLineCodeExecutor can't call host tools: use an executor of autogen_codeact"
    with pytest.raises(ValueError, match=complaint):
        CodeExecutorAgent("actor", executor, tools=[add])
    with pytest.raises(ValueError, match=complaint):
        CodeActAgent("actor", executor, model_client=scripted(), approve_tool=AllowTools([]))


async def test_agents_bring_tools_to_sandboxes_of_a_pool(bubblewrap: None) -> None:
    async with ExecutorPool(1, backend="bubblewrap", mode="session") as pool, pool.executor() as executor:
        client = scripted(python("final_answer(add(3, 4))"))
        agent = CodeActAgent("actor", executor, model_client=client, tools=[add])
        assert (await agent.run(task="Go.")).messages[-1].to_text() == "7"
