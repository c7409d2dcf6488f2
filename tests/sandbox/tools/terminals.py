"""A terminal in place of standard input, and what is shown to the person in front of it."""

import asyncio
import os
import pty
import re
import time
from collections.abc import Iterator

import pytest

from codeact_sandbox.tools import terminal as of_tools


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
    monkeypatch.setattr(of_tools._Screen, "withdrawn", False)
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

    def code(self) -> str:
        """The code that the last prompt asks for."""
        return re.findall(r"such as: y (\d+)\]", self.look())[-1]

    async def shows(self, text: str, times: int = 1) -> None:
        """Wait until it is there so many times."""
        until = time.monotonic() + 30
        while self.look().count(text) < times:
            assert time.monotonic() < until, self.text
            await asyncio.sleep(0.01)


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    """What is shown."""
    return Screen(capsys)
