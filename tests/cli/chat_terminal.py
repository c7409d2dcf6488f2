"""Running `codeact chat` in a pseudo-terminal that is its controlling one, so that Ctrl-C and job control are real."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pexpect
from pexpect.fdpexpect import fdspawn

from tests import processes
from tests.cli.support import containers_of, environment

_PROGRAM = """
import os, signal, sys
terminal, *sys.argv[1:] = sys.argv[1:]
os.setsid()
descriptor = os.open(terminal, os.O_RDWR)
for number in range(3):
    os.dup2(descriptor, number)
os.close(descriptor)
sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
from autogen_codeact.cli.main import main
sys.argv[0] = "codeact"
main()
"""
_ERASE = re.compile(r"\r\x1b\[2K|\x1b\[J")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ON = re.compile(r"[\nK]on\r\n")
"""Output of a program, at the beginning of a line."""
PROMPT = re.compile(r"\x1b\[\?2004h[^\n]*?>\x08\x1b\[2C")
"""The prompt, as it is drawn first; when a line has been sent, it is drawn once more."""
CTRL_C, CTRL_D = "\x03", "\x04"
ALT_ENTER = "\x1b\r"
SECONDS = 60
Wanted = str | re.Pattern[str]


def plain(text: str) -> str:
    """Return what was written to a terminal, without escape sequences."""
    first, *others = _ERASE.split(text)
    shown = first
    for each in others:  # what stood in the line is gone, such as what says that the model thinks, or a prompt
        shown = shown[: shown.rfind("\n") + 1] + each
    return _ESCAPES.sub("", shown).replace("\r", "")


class Chat:
    """A chat in a pseudo-terminal."""

    command = "chat"

    def __init__(
        self,
        *arguments: object,
        state: Path,
        env: Mapping[str, str] | None = None,
        size: tuple[int, int] | None = (40, 120),
        prompt: Wanted = PROMPT,
        cwd: Path | None = None,
    ) -> None:
        ours, theirs = pty.openpty()
        if size is not None:
            termios.tcsetwinsize(theirs, size)
        self.state, self._prompt = state, prompt
        variables = environment({"XDG_STATE_HOME": str(state), **(env or {})})
        if size is None:
            del variables["COLUMNS"]
        command = ["-c", _PROGRAM, os.ttyname(theirs), self.command, *map(str, arguments)]
        self.process = processes.start(command, env=variables, cwd=cwd, stdin=subprocess.DEVNULL)
        self._theirs = theirs
        self._terminal = fdspawn(ours, encoding="utf-8", timeout=SECONDS)
        self.written = ""

    def until(self, what: Wanted) -> str:
        """Wait until something was written; return, without escape sequences, what came before and with it."""
        try:
            self._terminal.expect(what if isinstance(what, re.Pattern) else re.escape(what))
        except (pexpect.TIMEOUT, pexpect.EOF):
            raise AssertionError(f"no {what!r} in {self._terminal.before!r}, after {self.written!r}") from None
        written = self._terminal.before + self._terminal.after
        self.written += written
        return re.sub("^> ?\x08?", "", plain(written))

    def until_prompt(self) -> str:
        """Wait for the prompt; return what came before it."""
        return re.sub("> ?\x08?$", "", self.until(self._prompt))

    def send(self, text: str) -> None:
        """Type keys."""
        self._terminal.send(text)

    def say(self, text: str) -> str:
        """Send a message, and return what came until the next prompt."""
        self.send(f"{text}\r")
        return self.until_prompt()

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit status, and what came until then."""
        status = self.process.wait(SECONDS)
        os.close(self._theirs)  # then the terminal has an end
        written = ""
        try:
            while True:
                written += self._terminal.read_nonblocking(65536, timeout=SECONDS)
        except (pexpect.EOF, OSError):
            pass
        self.written += written
        return status, re.sub("^> ?\x08?", "", plain(written))

    def hang_up(self) -> None:
        """Close the terminal, as its window does."""
        os.close(self._theirs)
        self._terminal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.__exit__(None, None, None)
        self._terminal.close()

    @property
    def runs(self) -> list[Path]:
        """The folders of the runs that it has kept."""
        folder = self.state / "autogen-codeact" / "runs"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def containers(self) -> list[str]:
        """Return the containers that it has left."""
        return containers_of(self.process.pid)
