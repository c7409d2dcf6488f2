"""Who approves the calls to host tools: a list, a person at a real terminal, a model."""

import asyncio
import json
import os
import pty
import time
from collections.abc import Iterator
from typing import Any

import pytest
from autogen_core import CancellationToken, ComponentModel
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.executors import (
    AllowTools,
    AskModel,
    AskPerson,
    DockerCommandLineCodeExecutor,
    ToolApproval,
    ToolApprovalRequest,
)
from autogen_codeact.executors.tools.policies import ToolPolicy, load_policy

from .sandboxes import run

YES = ToolApproval(True)
NO = "the person at the terminal said no"
PROMPT = "Allow it? [y]es, [a]lways this tool, or why not (Enter: no): "


def request(name: str = "pay", **arguments: Any) -> ToolApprovalRequest:
    return ToolApprovalRequest(name, arguments, "(amount: int) -> str", "Pay.", "pay(3)", "python", CancellationToken())


class TestAList:
    async def test_allows_names_and_patterns_and_asks_about_the_others(self) -> None:
        policy = AllowTools(["get_*", "add", "item?"])
        for name in ("get_", "get_price", "add", "item1"):
            assert await policy(request(name)) == YES
        for name in ("forget_price", "Add", "add2", "item", "item12"):
            reason = f"the tool {name} is not on the list of allowed tools"
            assert await policy(request(name)) == ToolApproval(False, reason)
        assert await AllowTools([], otherwise=policy)(request("add")) == YES

    def test_is_no_string(self) -> None:
        with pytest.raises(TypeError, match=r"names must be a list such as \['add'\], not a string"):
            AllowTools("add")


class Terminal:
    """A person's end of a terminal that is this program's standard input."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        self.stdin = os.fdopen(self._theirs)

    def type(self, text: str) -> None:
        """Type it."""
        os.write(self._ours, text.encode())

    def hang_up(self) -> None:
        """Close the person's end."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def close(self) -> None:
        """Close both ends."""
        self.hang_up()
        self.stdin.close()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal in place of standard input."""
    made = Terminal()
    monkeypatch.setattr("sys.stdin", made.stdin)
    yield made
    made.close()


class Screen:
    """What is shown on standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    def look(self) -> str:
        """All that has been shown."""
        self.text += self._capsys.readouterr().err
        return self.text

    async def shows(self, text: str, times: int = 1) -> None:
        """Wait until it is there so many times."""
        until = time.monotonic() + 10
        while self.look().count(text) < times:
            assert time.monotonic() < until, self.text
            await asyncio.sleep(0.01)


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    """What is shown."""
    return Screen(capsys)


class TestAPerson:
    async def test_says_yes_no_or_why_not(self, terminal: Terminal, screen: Screen) -> None:
        policy = AskPerson()
        answers = {
            "y": YES,
            " YES ": YES,
            "": ToolApproval(False, NO),
            "No": ToolApproval(False, NO),
            "too much, ask again tomorrow ": ToolApproval(False, f"{NO}: too much, ask again tomorrow"),
            "x" * 2000: ToolApproval(False, f"{NO}: {'x' * 1000}"),
        }
        for typed, expected in answers.items():
            terminal.type(f"{typed}\n")
            assert await policy(request(amount=3)) == expected
        assert screen.look() == f"The code wants to call pay(amount=3)\n{PROMPT}" * len(answers)

    async def test_who_says_always_is_not_asked_again_of_that_tool(self, terminal: Terminal, screen: Screen) -> None:
        policy = AskPerson()
        waiting = [asyncio.ensure_future(policy(request(amount=number))) for number in range(5)]
        await screen.shows(PROMPT)
        terminal.type("a\n")
        assert await asyncio.gather(*waiting, policy(request(amount=6))) == [YES] * 6
        terminal.type("n\n")
        assert await policy(request("refund")) == ToolApproval(False, NO)
        assert screen.look().count(PROMPT) == 2
        # What was said holds for that object, and is no part of its config.
        assert policy.dump_component().config == {}

    async def test_gets_one_question_at_a_time(self, terminal: Terminal, screen: Screen) -> None:
        policy = AskPerson()
        waiting = {name: asyncio.ensure_future(policy(request(name))) for name in ("one", "two", "three")}
        for number in range(1, 4):
            await screen.shows(PROMPT, number)
            await asyncio.sleep(0.02)
            assert screen.look().count(PROMPT) == number
            asked = screen.text.rpartition("call ")[2].partition("(")[0]
            terminal.type(f"not {asked}\n")
            assert await waiting[asked] == ToolApproval(False, f"{NO}: not {asked}")

    async def test_is_shown_no_tricks(self, terminal: Terminal, screen: Screen) -> None:
        terminal.type("y\n")
        await AskPerson()(request(to="a\rb\x1b[2K\u202ec\n", rest="z" * 10_000))
        await screen.shows(PROMPT)
        call = r'pay(to="a\rb\u001b[2K\u202ec\n", rest="' + "z" * 10_000 + '")'
        rest = f" … and {len(call) - 4000:,} characters more"
        assert screen.text == f"The code wants to call {call[:4000]}{rest}\n{PROMPT}"

    async def test_who_does_not_answer_has_said_no(self, terminal: Terminal, screen: Screen) -> None:
        assert await AskPerson(0.1)(request()) == ToolApproval(False, "nobody answered within 0.1 s")
        await screen.shows("\n[no answer is needed any more]\n")
        forgotten = asyncio.ensure_future(AskPerson()(request()))
        await screen.shows(PROMPT)
        forgotten.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forgotten
        terminal.type("y\n")  # the next question's
        assert await AskPerson()(request()) == YES
        terminal.hang_up()

    async def test_who_is_not_there_has_said_no(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal.type("\x04")
        closed = "there is nobody to ask any more: the terminal was closed"
        assert await AskPerson()(request()) == ToolApproval(False, closed)
        with open(os.devnull) as nothing:  # noqa: ASYNC230 - it holds nothing to wait for
            monkeypatch.setattr("sys.stdin", nothing)
            absent = "there is nobody to ask: this program has no terminal"
            assert await AskPerson()(request()) == ToolApproval(False, absent)

    def test_has_some_time(self) -> None:
        with pytest.raises(ValueError, match="timeout must be above 0 seconds, not 0"):
            AskPerson(0)


def model(*answers: str, **info: bool) -> ReplayChatCompletionClient:
    known = ModelInfo(
        vision=False, function_calling=False, json_output=False, family="unknown", structured_output=False
    )
    return ReplayChatCompletionClient(list(answers), model_info={**known, **info})  # type: ignore[typeddict-item]


class TestAModel:
    async def test_says_yes_or_why_not(self) -> None:
        client = model(
            '{"reason": "harmless", "approved": true}',
            'I think:\n```json\n{"reason": "too much", "approved": false}\n```',
            '{"reason": "' + "x" * 2000 + '", "approved": false}',
        )
        policy = AskModel(client, instructions="Be strict.")
        assert await policy(request(amount=3)) == ToolApproval(True, "harmless")
        assert await policy(request(amount=3)) == ToolApproval(False, "too much")
        assert await policy(request(amount=3)) == ToolApproval(False, "x" * 1000)
        (first, *_), form = client.create_calls[0]["messages"], client.create_calls[0]["json_output"]
        assert first.content.startswith("Be strict.\nAnswer with one JSON object and nothing else")
        assert form is None
        assert json.loads(client.create_calls[0]["messages"][1].content) == {
            "function": "pay(amount: int) -> str",
            "description": "Pay.",
            "arguments": {"amount": 3},
            "program": "pay(3)",
        }

    @pytest.mark.parametrize(
        "answer",
        [
            "",
            "yes",
            "{",
            "{}",
            '{"approved": true}',
            '{"reason": "r", "approved": "true"}',
            '{"reason": 1, "approved": true}',
        ],
    )
    async def test_that_says_something_else_has_said_no(self, answer: str) -> None:
        expected = ToolApproval(False, "the model that approves gave no answer that can be read")
        assert await AskModel(model(answer))(request()) == expected

    async def test_gets_the_form_that_it_knows(self) -> None:
        for info, form in (({"json_output": True}, "True"), ({"structured_output": True}, "Verdict")):
            client = model('{"reason": "", "approved": true}', **info)
            assert (await AskModel(client)(request())).approved
            asked = client.create_calls[0]["json_output"]
            assert getattr(asked, "__name__", str(asked)) == form

    async def test_has_its_bounds(self) -> None:
        class Slow(ReplayChatCompletionClient):
            async def create(self, *arguments: Any, **options: Any) -> CreateResult:
                await asyncio.sleep(30)
                return CreateResult(finish_reason="stop", content="", usage=RequestUsage(0, 0), cached=False)

        expected = ToolApproval(False, "the model that approves did not answer within 0.1 s")
        assert await AskModel(Slow([]), timeout=0.1)(request()) == expected
        long = ToolApproval(False, "the arguments are too long for the model that approves to judge them")
        client = model("{}")
        assert await AskModel(client)(request(text="x" * 50_000)) == long
        assert client.create_calls == []
        with pytest.raises(ValueError, match="timeout must be above 0 seconds, not -1"):
            AskModel(client, timeout=-1)


class TestTheConfig:
    def test_holds_each_policy_and_what_it_is_made_of(self) -> None:
        client = model('{"reason": "", "approved": true}')
        for policy in (
            AllowTools(["a", "b*"]),
            AskPerson(timeout=3),
            AskModel(client, "Be strict.", timeout=5),
            AllowTools(["a"], otherwise=AllowTools(["b"], otherwise=AskPerson())),
        ):
            dumped = policy.dump_component()
            assert dumped.provider == f"autogen_codeact.executors.{type(policy).__name__}"
            again = ToolPolicy.load_component(ComponentModel.model_validate_json(dumped.model_dump_json()))
            assert type(again) is type(policy)
            assert again.dump_component() == dumped

    def test_takes_no_other_component(self) -> None:
        dumped = model("x").dump_component()
        with pytest.raises(
            TypeError, match=r"approve_tool names .*, a replay_chat_completion_client; it must be a tool_policy"
        ):
            load_policy(dumped)


async def test_calls_in_parallel_are_approved_each_by_itself(
    terminal: Terminal, screen: Screen, sandbox_image: str
) -> None:
    """From the sandbox to the terminal and back, after the config has been written and read."""

    async def get(key: int) -> int:
        return key

    async def pay(amount: int) -> str:
        return f"paid {amount}"

    policy = AllowTools(["get"], otherwise=AskPerson())
    again = load_policy(policy.dump_component())
    code = """
        from concurrent.futures import ThreadPoolExecutor
        def attempt(n):
            try:
                return get(n) if n % 2 else pay(n)
            except PermissionError as error:
                return str(error)
        print(list(ThreadPoolExecutor(4).map(attempt, range(4))))
    """
    async with DockerCommandLineCodeExecutor(tools=[get, pay], approve_tool=again, timeout=30) as executor:
        running = asyncio.ensure_future(run(executor, code))
        await screen.shows(PROMPT)
        first = screen.text.rpartition("amount=")[2][0]
        terminal.type("y\nnot so much\n")
        result = await running
    refused = f"{NO}: not so much"
    assert result.output == str([f"paid {n}" if str(n) == first else n if n % 2 else refused for n in range(4)]) + "\n"
    assert sorted((call.name, call.outcome) for call in result.tool_calls) == [
        ("get", "ok"),
        ("get", "ok"),
        ("pay", "ok"),
        ("pay", "refused"),
    ]
