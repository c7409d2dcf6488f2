"""Asking the person at the terminal, one question at a time, so that an answer counts for one question only.

Sandboxed code decides when a question is asked and withdrawn. So input typed before a question could be read does not count, and
after a withdrawn question a yes must include the code from the new prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import sys
import termios
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

_LOCK = threading.Lock()
POLL_S = 0.05
QUIET_S = 0.5
"""Seconds between a question and its prompt; input typed until then is discarded."""
MAX_LINE_BYTES = 64 * 1024

NO_TERMINAL = "there is nobody to ask: this program has no terminal"
CLOSED = "there is nobody to ask any more: the terminal was closed"


class _Screen:
    """The state of the terminal, shared by all questions."""

    withdrawn = False
    """Whether the last question was withdrawn, so that the person may still be answering it."""


def _ignore(_: str) -> None:
    """Do nothing with an answer."""


@dataclass(frozen=True)
class Question:
    """A question.

    Args:
        about: Its subject, in a few words.
        text: Shown first, on standard error.
        prompt: Shown half a second later; from then on answers count.
        grants: Answers, in lower case, that allow the call; after a withdrawn question they need the shown code.
        timeout: Seconds to wait from the prompt on; None for no limit.
    """

    about: str
    text: str
    prompt: str
    grants: Collection[str]
    timeout: float | None = None


async def ask(
    question: Question, skip: Callable[[], bool] = lambda: False, on_answer: Callable[[str], None] = _ignore
) -> str:
    """Ask, and wait for a line.

    Args:
        question: The question.
        skip: Called before this question is shown; returns whether an earlier answer already allows the call.
        on_answer: Called with the line, in a thread, before the next question is shown.

    Returns:
        The line, without its line end and the code; "y" if the question was skipped.

    Raises:
        EOFError: There is no terminal; the message says so in a sentence.
        TimeoutError: Nobody answered.
    """
    if not sys.stdin or not sys.stdin.isatty():
        raise EOFError(NO_TERMINAL)
    cancelled = threading.Event()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def settle(line: str | None, error: Exception | None) -> None:
        if not answer.done():
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(line or "")

    def work() -> None:
        line, error = None, None
        try:
            line = _ask_alone(question, skip, on_answer, cancelled)
        except Exception as raised:  # noqa: BLE001 - passed to the caller
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, line, error)

    # Not the loop's own threads: a person takes long, and there are few of those.
    threading.Thread(target=work, name="codeact-question", daemon=True).start()
    try:
        return await answer
    finally:
        cancelled.set()


def _ask_alone(
    question: Question, skip: Callable[[], bool], on_answer: Callable[[str], None], cancelled: threading.Event
) -> str | None:
    while not _LOCK.acquire(timeout=POLL_S):
        if cancelled.is_set():
            return None
    try:
        if cancelled.is_set():
            return None
        if skip():
            return "y"
        line = _ask(question, cancelled)
        if line is not None:
            on_answer(line)
        return line
    finally:
        _LOCK.release()


def _ask(question: Question, cancelled: threading.Event) -> str | None:
    """Ask; None if the question was withdrawn."""
    terminal = _Terminal()
    code = f"{secrets.randbelow(900) + 100}" if _Screen.withdrawn else ""
    _Screen.withdrawn = True  # until there is an answer
    _show(question.text)
    if cancelled.wait(QUIET_S):
        _withdraw(question, terminal)
        return None
    needed = f"[an earlier question was withdrawn: a yes to this one needs a code, such as: y {code}]\n" if code else ""
    deadline = None if question.timeout is None else time.monotonic() + question.timeout
    while True:
        terminal.discard_input()
        _show(needed + question.prompt)
        line = terminal.read_line(deadline, cancelled)
        if line is None:
            _withdraw(question, terminal)
            if not cancelled.is_set():
                raise TimeoutError
            return None
        answer = line.strip().removesuffix(code).rstrip()
        if answer.lower() not in question.grants or line.strip().endswith(code):
            _Screen.withdrawn = False
            return answer


def _withdraw(question: Question, terminal: _Terminal) -> None:
    terminal.discard_input()
    _show(f"\n[the question about {question.about} was withdrawn; no answer is needed]\n")


class _Terminal:
    """The terminal on standard input; read without Python's buffer, which may contain earlier input.

    Raises:
        EOFError: The terminal was closed.
    """

    def __init__(self) -> None:
        try:
            self._fd = sys.stdin.fileno()
        except (OSError, ValueError):
            raise EOFError(CLOSED) from None
        self.discard_input()

    def discard_input(self) -> None:
        """Discard typed input, also a partial line."""
        try:
            termios.tcflush(self._fd, termios.TCIFLUSH)
        except (termios.error, OSError, ValueError):
            raise EOFError(CLOSED) from None

    def read_line(self, deadline: float | None, cancelled: threading.Event) -> str | None:
        """Wait for a line; None after the deadline or if the question was withdrawn."""
        typed = b""
        while not cancelled.is_set() and (deadline is None or time.monotonic() < deadline):
            if not select.select([self._fd], [], [], POLL_S)[0]:
                continue
            try:
                piece = os.read(self._fd, 4096)
            except OSError:
                piece = b""
            if not piece:
                raise EOFError(CLOSED)
            typed = (typed + piece)[-MAX_LINE_BYTES:]
            if typed.endswith((b"\n", b"\r")):
                return typed.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n")
        return None


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
