"""Persons at a real terminal who take their time: no thread waits for them, and the terminal is left as it was."""

import asyncio
import fcntl
import os
import termios
import threading
import time
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken
from autogen_core.models import UserMessage

from autogen_codeact.agents import CodeActAgent, ask_in_terminal
from autogen_codeact.executors import AskPerson, ToolApproval, ToolApprovalRequest
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Handoff as HandoffSpeakers
from autogen_codeact.teams import Team
from tests.agents.codeact import python
from tests.agents.support import received_by, scripted
from tests.sandbox.tools.terminals import Screen, Terminal, screen, terminal

__all__ = ["screen", "terminal"]  # fixtures
PROMPT = "Enter your response: "
WITHDRAWN = "\n[the question about your message was withdrawn; no answer is needed]\n"


def person(name: str = "person") -> UserProxyAgent:
    return UserProxyAgent(name, input_func=ask_in_terminal)


def pay() -> ToolApprovalRequest:
    return ToolApprovalRequest("pay", {}, "()", "Pay.", "pay()", "python")


def asked(someone: UserProxyAgent, token: CancellationToken | None = None) -> "asyncio.Task[Any]":
    task = TextMessage(content="Go.", source="user")
    return asyncio.ensure_future(someone.on_messages([task], token or CancellationToken()))


def state_of(terminal: Terminal) -> tuple[Any, int]:
    fd = terminal.stdin.fileno()
    return termios.tcgetattr(fd), fcntl.fcntl(fd, fcntl.F_GETFL)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def quiet_threads() -> int:
    """The number of threads, once those that write to the screen, or end the sandboxes of other tests, have ended."""
    until = time.monotonic() + 30
    while any(thread.name in ("codeact-question", "codeact-pool-work") for thread in threading.enumerate()):
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    return threading.active_count()


async def test_answer_of_a_user_is_the_message(terminal: Terminal, screen: Screen) -> None:
    waiting = asked(person())
    await screen.shows(PROMPT)
    terminal.type("  It is 42. \n")
    assert (await waiting).chat_message.content == "  It is 42. "
    terminal.type("typed ahead\n")
    assert (await asked(person())).chat_message.content == "typed ahead"
    assert screen.look() == PROMPT * 2


async def test_fifty_users_wait_without_a_thread_and_are_cancelled_at_once(terminal: Terminal, screen: Screen) -> None:
    before, threads, open_before = state_of(terminal), await quiet_threads(), descriptors()
    token = CancellationToken()
    waiting = [asked(person(f"person_{number}"), token if number % 2 else None) for number in range(50)]
    await screen.shows(PROMPT)
    approvals = [asyncio.ensure_future(AskPerson()(pay())) for _ in range(5)]
    await asyncio.sleep(0.05)
    assert await quiet_threads() == threads
    assert state_of(terminal) == before
    assert descriptors() == open_before + 1

    token.cancel()
    for each in (*waiting[::2], *approvals):
        each.cancel()
    ends = await asyncio.gather(*waiting, *approvals, return_exceptions=True)

    assert {type(end) for end in ends} == {asyncio.CancelledError}
    assert await quiet_threads() == threads
    assert (state_of(terminal), descriptors()) == (before, open_before)
    assert screen.look() == f"{PROMPT}{WITHDRAWN}"  # nobody else was asked


async def test_users_are_asked_in_their_order(terminal: Terminal, screen: Screen) -> None:
    waiting = [asked(person(name)) for name in ("a", "b", "c")]
    await screen.shows(PROMPT)
    approval = asyncio.ensure_future(AskPerson()(pay()))
    waiting[1].cancel()
    for number, each in enumerate((waiting[0], waiting[2]), 1):
        await screen.shows(PROMPT, number)
        assert screen.look().count(PROMPT) == number
        terminal.type(f"{number}\n")
        assert (await each).chat_message.content == str(number)
    terminal.type("y\n")  # before its question can be read: does not count
    await screen.shows("Allow pay?")
    terminal.type("y\n")
    assert await approval == ToolApproval(True)


async def test_withdrawn_message_needs_a_code_for_the_next_approval(terminal: Terminal, screen: Screen) -> None:
    waiting = asked(person())
    await screen.shows(PROMPT)
    terminal.type("half a line")
    waiting.cancel()
    approval = asyncio.ensure_future(AskPerson()(pay()))
    await screen.shows("Allow pay?")
    terminal.type("y\n")
    await screen.shows("Allow pay?", 2)
    terminal.type(f"y {screen.code()}\n")
    assert await approval == ToolApproval(True)


async def test_stopped_screen_does_not_stop_the_event_loop(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error that takes nothing, such as a terminal after Ctrl-S."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as writer:  # noqa: ASYNC230 - nobody waits for them
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writing, True)
        monkeypatch.setattr("sys.stderr", writer)
        waiting = asked(person())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while any(thread.name == "codeact-question" for thread in threading.enumerate()):
            reader.read()
            await asyncio.sleep(0.01)


async def test_without_a_terminal_there_is_a_clear_error(
    terminal: Terminal, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asked(person())
    await screen.shows(PROMPT)
    terminal.hang_up()
    with pytest.raises(RuntimeError, match="the terminal was closed before an answer"):
        await waiting
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(RuntimeError, match="approval needed, but stdin is not a terminal"):
        await asked(person())


TEAMS = pytest.mark.parametrize("kind", [Swarm, partial(Team, speakers=HandoffSpeakers())], ids=["Swarm", "Team"])


@TEAMS
async def test_agent_hands_over_to_a_user(
    session: SandboxCodeExecutor, terminal: Terminal, screen: Screen, kind: Any
) -> None:
    asks = python("transfer_to_person('Which year?')")
    model = scripted(asks, python("final_answer('done')"))
    worker = CodeActAgent("worker", session, model_client=model, handoffs=[Handoff(target="person")])
    team = kind([worker, person()], termination_condition=TextMentionTermination("done"))
    running = asyncio.ensure_future(team.run(task="Count."))
    await screen.shows("Handoff received from worker. Enter your response: ")
    terminal.type("2026\n")
    spoken = [message for message in (await running).messages if isinstance(message, HandoffMessage)]
    assert [(message.source, message.target, message.content) for message in spoken] == [
        ("worker", "person", "Which year?"),
        ("person", "worker", "2026"),
    ]
    assert received_by(model)[1][-1] == UserMessage(content="2026", source="person")
