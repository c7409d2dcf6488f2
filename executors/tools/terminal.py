"""Asking the person at the terminal, one question at a time, in a way that can be called off."""

from __future__ import annotations

import asyncio
import contextlib
import select
import sys
import threading
import time
from collections.abc import Callable

_TURN = threading.Lock()
PATIENCE_S = 0.05

NO_TERMINAL = "there is nobody to ask: this program has no terminal"
CLOSED = "there is nobody to ask any more: the terminal was closed"


def _nobody(_: str) -> None:
    """Who need not hear the answer early."""


async def ask(
    question: str,
    timeout: float | None = None,
    skip: Callable[[], bool] = lambda: False,
    heard: Callable[[str], None] = _nobody,
) -> str:
    """Ask, and wait for a line.

    Args:
        question: What is shown, on standard error.
        timeout: Seconds to wait from the time that the question is shown; None for no limit.
        skip: Looked at when it is this question's turn: whether an earlier answer was `yes` to it, too.
        heard: Told of the line, in a thread, before it is the next question's turn.

    Returns:
        The line, without its end; "y" where the question was skipped.

    Raises:
        EOFError: There is no terminal; the message says so in a sentence.
        TimeoutError: Nobody answered.
    """
    if not sys.stdin or not sys.stdin.isatty():
        raise EOFError(NO_TERMINAL)
    called_off = threading.Event()
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
            line = _ask_in_turn(question, timeout, skip, heard, called_off)
        except Exception as problem:  # noqa: BLE001 - it is the caller's
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, line, error)

    # Not the loop's own threads: a person takes long, and there are few of those.
    threading.Thread(target=work, name="codeact-question", daemon=True).start()
    try:
        return await answer
    finally:
        called_off.set()


def _ask_in_turn(
    question: str,
    timeout: float | None,
    skip: Callable[[], bool],
    heard: Callable[[str], None],
    called_off: threading.Event,
) -> str | None:
    while not _TURN.acquire(timeout=PATIENCE_S):
        if called_off.is_set():
            return None
    try:
        if called_off.is_set():
            return None
        if skip():
            return "y"
        sys.stderr.write(question)
        sys.stderr.flush()
        line = _read_line(timeout, called_off)
        if line is not None:
            heard(line)
        return line
    finally:
        _TURN.release()


def _read_line(timeout: float | None, called_off: threading.Event) -> str | None:
    ends = None if timeout is None else time.monotonic() + timeout
    while not called_off.is_set():
        if ends is not None and time.monotonic() > ends:
            _say_it_is_over()
            raise TimeoutError
        # A terminal hands out whole lines, so that reading does not wait any more.
        if select.select([sys.stdin], [], [], PATIENCE_S)[0]:
            line = sys.stdin.readline()
            if not line:
                raise EOFError(CLOSED)
            return line.rstrip("\r\n")
    _say_it_is_over()
    return None


def _say_it_is_over() -> None:
    sys.stderr.write("\n[no answer is needed any more]\n")
    sys.stderr.flush()
