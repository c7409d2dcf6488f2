"""Asks the user at the terminal, one question at a time, so that an answer counts for one question only.

Sandboxed code decides when a question is asked and withdrawn. So input typed before a question could be read does not count, and
after a withdrawn question a yes must include the code from the new prompt.

A user may take hours, so no thread waits: the event loop of the caller looks at the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import select
import sys
import termios
from collections.abc import Callable, Collection
from dataclasses import dataclass
from shutil import get_terminal_size

from codeact_sandbox.host.threads import Threads
from codeact_sandbox.host.waiting import CrossLoopSemaphore

_TURN = CrossLoopSemaphore()
_WRITER = Threads(most=1, name="codeact-question")  # a stopped terminal blocks who writes to it
POLL_S = 0.05
QUIET_S = 0.5  # seconds between a question and its prompt; input typed until then is discarded
MAX_LINE_BYTES = 64 * 1024
PAGE_ROWS = 200  # which no terminal forgets

NO_TERMINAL = "approval needed, but stdin is not a terminal"
CLOSED = "the terminal was closed before an answer"


class _Screen:
    """The state of the terminal, shared by all questions."""

    withdrawn = False  # whether the last question was withdrawn, so that the user may still be answering it


@dataclass(frozen=True)
class Question:
    about: str  # its subject, in a few words
    text: str  # shown first, on standard error
    prompt: str  # shown half a second later; from then on answers count
    grants: Collection[
        str
    ]  # answers, in lower case, that allow the call; after a withdrawn question they need the shown code
    timeout: float | None = None  # seconds to wait from the prompt on; None for no limit
    # whether any line is an answer, as for `input()`, also one that was typed before the prompt. If the last question was
    # withdrawn, input typed before the prompt does not count here either
    free: bool = False


async def ask_line(prompt: str) -> str:
    """Ask the user at the terminal for a line of text, as `input()` does, and hold no thread meanwhile."""
    return await ask(Question("your message", "", prompt, (), free=True))


async def ask(question: Question, skip: Callable[[], bool] = lambda: False) -> str:
    """Ask, and wait for a line. Cancelling it withdraws the question."""
    if not sys.stdin or sys.stdin.closed or not sys.stdin.isatty():
        raise EOFError(NO_TERMINAL)
    async with _TURN:
        if skip():
            return "y"
        terminal = _Terminal()
        try:
            return await _ask(question, terminal)
        finally:
            terminal.close()


async def _ask(question: Question, terminal: _Terminal) -> str:
    code = f"{secrets.randbelow(900) + 100}" if _Screen.withdrawn else ""
    settle = not question.free or _Screen.withdrawn
    _Screen.withdrawn = True  # until there is an answer
    *pages, last = _pages(question.text)
    try:
        async with asyncio.timeout(question.timeout):
            for number, page in enumerate(pages, 1):
                prompt = f"[page {number} of {len(pages) + 1}: Enter shows the next one, anything else refuses] "
                if refusal := await _turned(page, prompt, question, terminal):
                    _Screen.withdrawn = False
                    return refusal
        await _write(last)
        if settle:
            await asyncio.sleep(QUIET_S)
        async with asyncio.timeout(question.timeout):
            return await _read_answer(question, terminal, code, settle=settle)
    except (asyncio.CancelledError, TimeoutError):
        with contextlib.suppress(EOFError):
            terminal.discard_input()
        _WRITER.submit(lambda: _show(f"\n[the question about {question.about} was withdrawn; no answer is needed]\n"))
        raise


def _pages(text: str) -> list[str]:
    """Split a text that a terminal could scroll out of sight."""
    rows = re.findall(f"[^\n]{{1,{get_terminal_size().columns}}}\n?|\n", text)
    return ["".join(rows[at : at + PAGE_ROWS]) for at in range(0, len(rows), PAGE_ROWS)] or [""]


async def _turned(page: str, prompt: str, question: Question, terminal: _Terminal) -> str:
    """Show a page that others follow, and wait; return why not if the user refuses before the end."""
    await _write(page)
    await asyncio.sleep(QUIET_S)
    terminal.discard_input()
    await _write(f"\n{prompt}")
    line = (await terminal.read_line()).strip()
    return "" if line.lower() in question.grants else line


async def _read_answer(question: Question, terminal: _Terminal, code: str, *, settle: bool) -> str:
    needed = ""
    if code and not question.free:
        needed = f"[an earlier question was withdrawn: a yes to this one needs a code, such as: y {code}]\n"
    while True:
        if settle:
            terminal.discard_input()
        await _write(needed + question.prompt)
        line = await terminal.read_line()
        if question.free:
            _Screen.withdrawn = False
            return line
        answer = line.strip().removesuffix(code).rstrip()
        if answer.lower() not in question.grants or line.strip().endswith(code):
            _Screen.withdrawn = False
            return answer


async def _write(text: str) -> None:
    if text:
        await _WRITER.run(lambda: _show(text))


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class _Terminal:
    """The terminal on standard input; read without Python's buffer, which may contain earlier input.

    It is opened once more, so that reading does not block, while standard input stays as it is for other
    processes that have it, such as the shell. Its modes are left alone.
    """

    def __init__(self) -> None:
        try:
            self._fd = _reopen(sys.stdin.fileno())
        except (OSError, ValueError):
            raise EOFError(CLOSED) from None

    def close(self) -> None:
        """Close what was opened here."""
        os.close(self._fd)

    def discard_input(self) -> None:
        """Discard typed input, also a partial line."""
        try:
            termios.tcflush(self._fd, termios.TCIFLUSH)
        except (termios.error, OSError, ValueError):
            raise EOFError(CLOSED) from None

    async def read_line(self) -> str:
        """Wait for a line, without its line end."""
        typed = b""
        while not typed.endswith((b"\n", b"\r")):
            await self._wait_for_input()
            try:
                piece = os.read(self._fd, 4096)
            except BlockingIOError:  # another reader has taken it
                continue
            except OSError:
                piece = b""
            if not piece:
                raise EOFError(CLOSED)
            typed = (typed + piece)[-MAX_LINE_BYTES:]
        return typed.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n")

    async def _wait_for_input(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while not poll.poll(0):  # noqa: ASYNC110 - not every event loop can watch a terminal
            await asyncio.sleep(POLL_S)


def _reopen(fd: int) -> int:
    """Return a descriptor of the same terminal, which does not block if the terminal can be opened."""
    try:
        opened = os.open(os.ttyname(fd), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return os.dup(fd)
    if os.fstat(opened).st_rdev == os.fstat(fd).st_rdev:  # the name may be that of another terminal, in a container
        return opened
    os.close(opened)
    return os.dup(fd)
