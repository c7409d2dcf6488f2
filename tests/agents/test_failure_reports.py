"""What a model knows when it decides whether to try again, and in the next attempt: real sandbox, exact messages."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core import CancellationToken
from autogen_core.models import AssistantMessage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CARRY_ON
from autogen_codeact.agents.code_runner import INTERRUPTED
from autogen_codeact.agents.decision import QUESTION
from autogen_codeact.agents.observation import CALLS_MADE
from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    SandboxDied,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.codeact import from_agent, model, python, user
from tests.agents.support import decision, received_by, scripted
from tests.sandbox.bubblewrapped import descendants, pid_one

PAYS = "print('paying')\nprint(pay('Ann', 3))\n"
KEPT = "The session's memory was kept: what this code defined before it ended is there."
LOST = "The session's memory is lost: import, load and define again what you need."


class Bank:
    """A tool with effects."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay(self, to: str, euros: int) -> str:
        """Pay somebody."""
        self.paid.append((to, euros))
        return f"receipt {len(self.paid)}"


def killer() -> Callable[[], None]:
    """A tool that kills the sandbox that is started next."""
    others = descendants(os.getpid())

    def end_it() -> None:
        """Kill the sandbox."""
        os.kill(pid_one(os.getpid(), others), signal.SIGKILL)

    return end_it


def contents(client: Any, call: int) -> list[Any]:
    return received_by(client)[call][1:]


async def decided(executor: SandboxCodeExecutor, code: str, bank: Bank) -> tuple[Any, list[Any]]:
    """Let code fail and be repaired; gives the model's client and what it was told in the next attempt."""
    client = scripted(python(code), decision(True, "skip the payment"), python("print('ok')"), "Done.")
    agent = CodeExecutorAgent("actor", executor, model_client=client, max_retries_on_error=1, tools=[bank.pay])
    await agent.run(task="Pay Ann 3.")
    return client, contents(client, 2)


async def test_after_an_error_the_payment_is_known(session: SandboxCodeExecutor) -> None:
    bank = Bank()
    client, next_attempt = await decided(session, PAYS + "1 / 0", bank)

    failure = from_agent(
        "The script ran, then exited with an error (POSIX exit code: 1)\nIts output was:\npaying\nreceipt 1\n"
        "Traceback (most recent call last):\n"
        '  File "<block 1>", line 3, in <module>\n    1 / 0\n    ~~^~~\nZeroDivisionError: division by zero\n\n'
        f'{KEPT}\n{CALLS_MADE}\n- pay(to="Ann", euros=3) was done and gave "receipt 1"'
    )
    conversation = [user("Pay Ann 3."), model(python(PAYS + "1 / 0")), failure]
    assert contents(client, 1) == [*conversation, from_agent(QUESTION)]
    assert next_attempt == [*conversation, model("skip the payment"), from_agent(CARRY_ON)]
    assert bank.paid == [("Ann", 3)]


async def test_calls_of_an_interrupted_turn_are_reported_in_the_next(session: SandboxCodeExecutor) -> None:
    bank = Bank()
    client = scripted(python(PAYS + "import time\ntime.sleep(60)"), "Paid already.", "And again.")
    agent = CodeActAgent("actor", session, model_client=client, tools=[bank.pay])
    token = CancellationToken()
    running = asyncio.create_task(agent.run(task="Pay Ann 3.", cancellation_token=token))
    while not agent._runner._calls:  # noqa: ASYNC110 (the host is called)
        await asyncio.sleep(0.02)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    state = json.loads(json.dumps(await agent.save_state()))
    await agent.load_state(state)  # which knows of no other payment than the agent
    heir = CodeExecutorAgent("actor", session, model_client=(heirs := scripted("Paid already.")))
    await heir.load_state(state | {"type": "CodeExecutorAgentState"})
    await heir.run(task="Pay Ann 3.")

    await agent.run(task="Pay Ann 3.")
    interrupted = from_agent(f'{INTERRUPTED}\n- pay(to="Ann", euros=3) was done and gave "receipt 1"')
    assert contents(client, 1) == contents(heirs, 0) == [user("Pay Ann 3."), interrupted]
    assert (await agent.save_state())["interrupted"] == []
    await agent.run(task="Sure?")
    assert contents(client, 2)[-2:] == [
        AssistantMessage(content="Paid already.", source="actor"),
        user("Sure?"),
    ]


async def test_broken_sandbox_and_lost_session_are_reported_to_the_model(bubblewrap: None) -> None:
    bank = Bank()
    end_it = killer()
    async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=20) as executor:
        first, second = python("x = 1\nprint(pay('Ann', 3))\nend_it()"), python("print('x' in globals())")
        client = scripted(first, second, "Done.")
        agent = CodeActAgent("actor", executor, model_client=client, tools=[bank.pay, end_it])
        result = await agent.run(task="Pay Ann 3.")

    events = [message for message in result.messages if isinstance(message, CodeExecutionEvent)]
    assert [event.metadata["outcome"] for event in events] == ["crashed", "ok"]
    assert [event.metadata["state"] for event in events] == ["lost", "lost"]
    assert events[0].metadata["error"] == "SandboxDied"
    words = str(contents(client, 1)[-1].content)
    assert words.startswith("The sandbox broke while the code ran (")
    assert LOST in words
    assert '- pay(to="Ann", euros=3) was done and gave "receipt 1"' in words
    assert str(contents(client, 2)[-1].content).startswith(f"False\n\n{LOST}")


@pytest.mark.parametrize("mode", ["session", "process"])
async def test_the_retry_decision_knows_of_a_sandbox_that_broke(bubblewrap: None, mode: str) -> None:
    bank = Bank()
    end_it = killer()
    async with BubblewrapCommandLineCodeExecutor(mode=mode, timeout=20) as executor:
        first, second = python("x = 1\nprint(pay('Ann', 3))\nend_it()"), python("print('x' in globals())")
        client = scripted(first, decision(True, "look"), second, "Done.")
        agent = CodeExecutorAgent(
            "actor", executor, model_client=client, tools=[bank.pay, end_it], max_retries_on_error=1
        )
        result = await agent.run(task="Pay Ann 3.")
        events = [message for message in result.messages if isinstance(message, CodeExecutionEvent)]
        assert [(event.metadata["outcome"], event.metadata["state"]) for event in events] == [
            ("crashed", "lost" if mode == "session" else "kept"),
            ("ok", "lost"),
        ]
        words, question = contents(client, 1)[-2:]
        assert question == from_agent(QUESTION)
        assert str(words.content).startswith("The sandbox broke while the code ran (")
        assert (LOST in str(words.content)) == (mode == "session")
        assert '- pay(to="Ann", euros=3) was done and gave "receipt 1"' in str(words.content)

        last = CodeExecutorAgent("last", executor, model_client=scripted(first))
        with pytest.raises(SandboxDied):  # because no attempt is left
            await last.run(task="Go.")


async def test_a_sandbox_that_breaks_twice_running_ends_the_turn(bubblewrap: None) -> None:
    end_it = killer()
    async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=20) as executor:
        client = scripted(python("end_it()"), python("end_it()"), "never asked")
        agent = CodeActAgent("actor", executor, model_client=client, tools=[end_it])
        with pytest.raises(SandboxDied):
            await agent.run(task="Go.")
        assert await agent.model_context.get_messages() == []
