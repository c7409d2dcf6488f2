"""H. Questions to a person at a real terminal: an answer allows only the call that it was given to."""

import asyncio
from typing import Any

import pytest

from autogen_codeact.executors import AllowTools, AskPerson
from tests.sandbox.tools.terminals import screen, terminal

from .subject import each_engine

__all__ = ["screen", "terminal"]  # fixtures
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
