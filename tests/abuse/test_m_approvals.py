"""H4 and M2 to M4. An answer allows only what was asked, which is shown whole, with nothing hidden, moved or rounded."""

import asyncio
import json
from typing import Any

import pytest

from autogen_codeact.agents import ApprovalRequest
from autogen_codeact.cli.approval import CodeApproval, ask_about
from autogen_codeact.executors import AllowTools, AskPerson
from autogen_codeact.runs.answers import Question, digest, write_answers
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.events import QuestionAsked
from autogen_codeact.viewer.control import ApprovalQuestion, RunControl
from codeact_sandbox.integrations import mcp_wrap
from codeact_sandbox.tools import question_text
from codeact_sandbox.tools.approval import ToolApproval, ToolApprovalRequest
from tests.sandbox.tools.terminals import Screen, Terminal, screen, terminal

from .subject import each_engine

__all__ = ["screen", "terminal"]  # fixtures
TOO_LONG = question_text.MAX_SHOWN + 1
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r"
LONG = {"a": "x" * 30_000, "z_to": "mallory", "b": ["y"] * 500}
PROMPT = "Allow pay?"


def request(code: str = "pay()", /, **arguments: Any) -> ToolApprovalRequest:
    return ToolApprovalRequest("pay", arguments, "(…)", "Pay.", code, "python")


def kept(text: str) -> Question:
    return Question(QuestionAsked(question="q1", agent="a", block=1, tool="pay", text=text, sha256=digest("pay", text)))


class Client:
    """An MCP client whose user says yes."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, message: str, _: object) -> Any:
        self.asked.append(message)
        return type("Answer", (), {"action": "accept"})


async def everywhere(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the text of a call as a terminal, a page, an MCP client and a resume show it."""
    shown: list[str] = []

    async def ask(question: Any, *_: object) -> str:
        shown.append(question.text)
        return "n"

    monkeypatch.setattr("autogen_codeact.executors.tools.policies.ask", ask)
    await AskPerson()(request(**arguments))
    client = Client()
    mcp_wrap.client.set(client)
    await mcp_wrap.Wrapped([], allow=[])._approve(request(**arguments))
    shown += client.asked
    shown.append(str(ApprovalQuestion("call", "", "pay", arguments).document(1)["arguments"]))
    shown.append(kept(question_text.arguments_text(arguments)).describe())
    return shown


# Case M2.
async def test_a_call_is_shown_whole_and_in_the_same_form_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps(LONG, indent=2, sort_keys=True)
    shown = await everywhere(LONG, monkeypatch)
    assert len(shown) == 4
    assert all(text.strip().endswith(whole) for text in shown)


# Case M2.
async def test_a_long_question_is_turned_page_by_page(terminal: Terminal, screen: Screen) -> None:
    rows = [f"row {number}" for number in range(450)]
    for turns, expected in ((["", "y"], True), ([""], False), (["y", "a"], True)):
        asked = asyncio.ensure_future(AskPerson()(request(rows=rows)))
        seen = screen.look().count(PROMPT)
        for number, typed in enumerate(turns, 1):
            await screen.shows(f"[page {number} of 3", len(screen.text.split(f"[page {number} of 3")))
            assert screen.look().count(PROMPT) == seen, "no answer counts before the last page"
            terminal.type(f"{typed}\n")
        if expected:
            await screen.shows(PROMPT, seen + 1)
            assert all(f'"{row}"' in screen.look() for row in rows)
            terminal.type("y\n")
        else:
            await screen.shows("[page 2 of 3", len(screen.text.split("[page 2 of 3")))
            terminal.type("no, too long\n")
        assert (await asked).approved is expected


# Case M2.
@pytest.mark.parametrize("text", ["x" * TOO_LONG, "\u2028" * (TOO_LONG // 5)], ids=["long", "long as escapes"])
async def test_what_is_too_long_to_be_shown_is_approved_nowhere(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> Any:
        pytest.fail("somebody was asked")

    monkeypatch.setattr("autogen_codeact.executors.tools.policies.ask", never)
    monkeypatch.setattr("autogen_codeact.cli.approval.ask", never)
    client = Client()
    mcp_wrap.client.set(client)
    answers: list[Any] = [
        await AskPerson()(request(to=text)),
        await mcp_wrap.Wrapped([], allow=[])._approve(request(to=text)),
        await CodeApproval(never)(ApprovalRequest(code=text, context=[])),
    ]
    assert [answer.approved for answer in answers] == [False] * 3
    assert client.asked == []
    with pytest.raises(ValueError, match="can't be shown"):
        await RunControl("/none", lambda: None).ask(ApprovalQuestion("code", text))
    assert "can only be denied" in kept(text).describe()


# Case M2.
async def test_a_kept_question_that_is_too_long_can_only_be_denied(tmp_path: Any) -> None:
    with pytest.raises(RunError, match="too long to be shown"):
        write_answers(tmp_path, [kept("x" * TOO_LONG)], {"q1": True})


# Case M3.
@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
async def test_code_is_shown_with_the_lines_that_python_reads(separator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"# {separator}if not allowed: raise SystemExit\nsend()"
    shown: list[str] = []

    async def ask(question: Any, *_: object) -> str:
        shown.append(question.text.partition("\n")[2].removesuffix("\n"))
        return "n"

    monkeypatch.setattr("autogen_codeact.cli.approval.ask", ask)
    await ask_about(code)
    shown.append(ApprovalQuestion("code", code).document(1)["text"])
    escape = separator.encode("unicode_escape").decode()
    assert shown == [code.replace(separator, escape)] * 2


# Case M3.
async def test_arguments_have_no_separator_either(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in await everywhere({SEPARATORS: SEPARATORS}, monkeypatch):
        assert not set(text) & set(SEPARATORS), ascii(text)


# Case M4.
async def test_numbers_are_shown_digit_by_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"amount": 9_007_199_254_740_993, "more": [10**30, float("nan"), 0.1]}
    for text in await everywhere(arguments, monkeypatch):
        assert all(word in text for word in ("9007199254740993", str(10**30), "NaN", "0.1")), text
    assert await mcp_wrap.Wrapped([], allow=["*"])._approve(request()) == ToolApproval(True)


READ, DELETE = "Allow read_note?", "Allow delete_all?"
WITHDRAWN = "\n[the question about read_note was withdrawn; no answer is needed]\n"


class Host:
    """The tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.typed = asyncio.Event()

    async def read_note(self) -> str:
        """Read a note."""
        self.done.append("read_note")
        return "a note"

    async def delete_all(self) -> str:
        """Delete everything."""
        self.done.append("delete_all")
        return "all is gone"

    async def go(self) -> None:
        """Wait until the person has typed."""
        await self.typed.wait()

    def options(self) -> dict[str, Any]:
        """The options of a sandbox that has these tools."""
        policy = AllowTools(["go"], otherwise=AskPerson())
        return {"tools": [self.read_note, self.delete_all, self.go], "approve_tool": policy, "timeout": 30}


SWAP = """
    import asyncio
    async def swap():
        reading = asyncio.ensure_future(read_note.aio())
        await go.aio()
        reading.cancel()
        try:
            print(await delete_all.aio())
        except PermissionError as error:
            print(error)
    asyncio.run(swap())
"""


# Case H4.
@each_engine
@pytest.mark.parametrize("late", ["", "y\n", "yes\n", "a\n"], ids=["Enter", "y", "yes", "always"])
async def test_an_answer_to_a_withdrawn_question_allows_nothing(subject, terminal, screen, late):
    host = Host()
    await subject.start(host.options())
    running = asyncio.ensure_future(subject.out(SWAP, timeout=30))
    await screen.shows(READ)
    terminal.type("y" if not late else "")
    host.typed.set()
    await screen.shows(WITHDRAWN)
    await screen.shows("The code wants to call delete_all with")
    terminal.type(late or "\n")  # before the prompt: dropped
    await screen.shows(DELETE)
    assert host.done == []
    terminal.type(late or "y\n")  # behind it: without the code it is no yes
    await screen.shows(DELETE, 2)
    assert host.done == []
    terminal.type("no\n")
    assert await running == "the person at the terminal said no\n"
    assert host.done == []
