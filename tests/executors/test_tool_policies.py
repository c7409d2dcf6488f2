"""Who approves the calls to host tools: a list, a person at a real terminal, a model."""

import asyncio
import os
from typing import Any

import pytest
from autogen_core import ComponentModel

from autogen_codeact.executors import (
    AllowTools,
    AskPerson,
    ToolApproval,
    ToolApprovalRequest,
)
from autogen_codeact.executors.tools.policies import ToolPolicy
from tests.sandbox.tools.terminals import screen, terminal

__all__ = ["screen", "terminal"]  # fixtures

YES = ToolApproval(True)
NO = "the person at the terminal said no"
PROMPT = "Allow pay? [y]es, [a]lways this tool, or why not (Enter: no): "
ANY_PROMPT = PROMPT.partition("pay")[2]


def request(name: str = "pay", **arguments: Any) -> ToolApprovalRequest:
    return ToolApprovalRequest(name, arguments, "(amount: int) -> str", "Pay.", "pay(3)", "python")


class TestAllowTools:
    async def test_allow_tools_allows_names_and_patterns_and_asks_about_the_others(self):
        policy = AllowTools(["get_*", "add", "item?"])
        for name in ("get_", "get_price", "add", "item1"):
            assert await policy(request(name)) == YES
        for name in ("forget_price", "Add", "add2", "item", "item12"):
            reason = f"the tool {name} is not on the list of allowed tools"
            assert await policy(request(name)) == ToolApproval(False, reason)
        assert await AllowTools([], otherwise=policy)(request("add")) == YES


class TestAskPerson:
    async def test_person_answers_yes_no_or_with_a_reason(self, terminal, screen):
        policy = AskPerson()
        answers = {
            "y": YES,
            " YES ": YES,
            "": ToolApproval(False, NO),
            "No": ToolApproval(False, NO),
            "too much, ask again tomorrow ": ToolApproval(False, f"{NO}: too much, ask again tomorrow"),
            "x" * 2000: ToolApproval(False, f"{NO}: {'x' * 1000}"),
        }
        for number, (typed, expected) in enumerate(answers.items(), 1):
            asked = asyncio.ensure_future(policy(request(amount=3)))
            await screen.shows(PROMPT, number)
            terminal.type(f"{typed}\n")
            assert await asked == expected
        call = 'The code wants to call pay with these arguments:\n{\n  "amount": 3\n}\n'
        assert screen.look() == f"{call}{PROMPT}" * len(answers)

    async def test_person_who_answers_always_is_not_asked_again_for_that_tool(self, terminal, screen):
        policy = AskPerson()
        waiting = [asyncio.ensure_future(policy(request(amount=number))) for number in range(5)]
        await screen.shows(PROMPT)
        terminal.type("a\n")
        assert await asyncio.gather(*waiting, policy(request(amount=6))) == [YES] * 6
        refund = asyncio.ensure_future(policy(request("refund")))
        await screen.shows("Allow refund?")
        terminal.type("n\n")
        assert await refund == ToolApproval(False, NO)
        assert screen.look().count(ANY_PROMPT) == 2
        # What was said holds for that object, and is no part of its config.
        assert policy.dump_component().config == {}

    async def test_missing_answer_is_a_no(self, terminal, screen):
        assert await AskPerson(0.1)(request()) == ToolApproval(False, "no answer within 0.1 s")
        await screen.shows("\n[the question about pay was withdrawn; no answer is needed]\n")
        forgotten = asyncio.ensure_future(AskPerson()(request()))
        await screen.shows(PROMPT, 2)
        forgotten.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forgotten
        await screen.shows("\n[the question about pay was withdrawn; no answer is needed]\n", 2)
        next_one = asyncio.ensure_future(AskPerson()(request()))
        await screen.shows(PROMPT, 3)
        terminal.type(f"y {screen.code()}\n")
        assert await next_one == YES
        terminal.hang_up()

    async def test_closed_terminal_is_a_no(self, terminal, screen, monkeypatch):
        asked = asyncio.ensure_future(AskPerson()(request()))
        await screen.shows(PROMPT)
        terminal.type("\x04")
        closed = ToolApproval(False, "the terminal was closed before an answer")
        assert await asked == closed
        asked = asyncio.ensure_future(AskPerson()(request()))
        await screen.shows(PROMPT, 2)
        terminal.hang_up()
        assert await asked == closed
        reading, writing = os.pipe()
        with open(reading) as pipe, open(writing, "w") as other:  # noqa: ASYNC230 - nobody waits for them
            print("y", file=other, flush=True)
            monkeypatch.setattr("sys.stdin", pipe)
            absent = "approval needed, but stdin is not a terminal"
            assert await AskPerson()(request()) == ToolApproval(False, absent)


class TestConfig:
    def test_config_contains_each_policy_and_its_parts(self):
        for policy in (
            AllowTools(["a", "b*"]),
            AskPerson(timeout=3),
            AllowTools(["a"], otherwise=AllowTools(["b"], otherwise=AskPerson())),
        ):
            dumped = policy.dump_component()
            assert dumped.provider == f"autogen_codeact.executors.{type(policy).__name__}"
            again = ToolPolicy.load_component(ComponentModel.model_validate_json(dumped.model_dump_json()))
            assert type(again) is type(policy)
            assert again.dump_component() == dumped
