"""Reads the messages of a chat from a pipe or a simple terminal. `chat_prompt.py` has the editor for other terminals."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
from contextlib import suppress
from typing import Protocol

from autogen_codeact.cli.output import printable

PROMPT = "> "
MORE = "… "
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_LINES_AHEAD = 1000
"""Lines that are read before they are needed; a pipe can give any number."""


class Interrupted(Exception):
    """Ctrl-C was pressed while a line was typed."""


class Reader(Protocol):
    """Reads messages and answers of the user."""

    async def message(self) -> str:
        """Show the prompt and return what was typed, maybe of several lines."""
        ...

    async def answer(self, question: str) -> str:
        """Ask a question and return the line that was typed after it was shown."""
        ...

    def interrupt(self) -> bool:
        """End the present `message` or `answer` with `Interrupted`; return whether there was one."""
        ...


class LineReader:
    """Reads lines from standard input; a line that ends with a backslash goes on in the next one."""

    def __init__(self, *, echo: bool) -> None:
        self._echo = echo
        self._lines: asyncio.Queue[tuple[int, str | None]] | None = None
        self._questions = 0
        self._waiting: asyncio.Future[str | None] | None = None
        self._ended = False
        self._room = threading.Semaphore(MAX_LINES_AHEAD)

    async def message(self) -> str:
        """Show the prompt, and read a message."""
        lines = [await self._line(PROMPT)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(await self._line(MORE))
        return "\n".join(lines)

    async def answer(self, question: str) -> str:
        """Ask a question, and read a line; at a terminal, what was typed before it does not count."""
        if not self._echo:
            self._questions += 1
            with suppress(termios.error, OSError):
                termios.tcflush(0, termios.TCIFLUSH)
        return await self._line(question, self._questions)

    def interrupt(self) -> bool:
        """End the present question."""
        if self._waiting is None or self._waiting.done():
            return False
        self._waiting.set_exception(Interrupted())
        return True

    async def _line(self, prompt: str, questions: int = 0) -> str:
        """Read a line that was typed after so many questions."""
        sys.stdout.write(prompt)
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        if self._lines is None:
            self._lines = asyncio.Queue()
            threading.Thread(target=self._read, args=(loop, self._lines), name="chat-input", daemon=True).start()
        if self._ended:
            raise EOFError
        taking = asyncio.ensure_future(self._next(self._lines, questions))
        self._waiting = loop.create_future()
        try:
            await asyncio.wait({taking, self._waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._waiting.done():
                sys.stdout.write("\n")
                self._waiting.result()
            line = await taking
        finally:
            taking.cancel()
            self._waiting.cancel()
            self._waiting = None
        if line is None:
            self._ended = True
            sys.stdout.write("\n")
            raise EOFError
        if self._echo:
            sys.stdout.write(f"{printable(line)}\n")
            sys.stdout.flush()
        return line

    async def _next(self, lines: asyncio.Queue[tuple[int, str | None]], questions: int) -> str | None:
        while True:
            asked, line = await lines.get()
            self._room.release()
            if line is None or asked >= questions:
                return line

    def _read(self, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[tuple[int, str | None]]) -> None:
        """Read lines until the end. A thread, because a file can't be watched; daemonic, because it may wait for ever.

        Not through `sys.stdin`: its lock, which this thread would hold at the end of the process, ends that with an error.
        """
        waiting = b""
        encoding = sys.stdin.encoding or "utf-8"
        with suppress(RuntimeError):  # the event loop has been closed
            while piece := _read_piece():
                asked = self._questions
                *whole, waiting = (waiting + piece).split(b"\n")
                waiting = waiting[-MAX_LINE_BYTES:]
                for line in whole:
                    self._room.acquire()
                    text = line.decode(encoding, "replace").rstrip("\r")
                    loop.call_soon_threadsafe(lines.put_nowait, (asked, text))
            if waiting:
                loop.call_soon_threadsafe(lines.put_nowait, (self._questions, waiting.decode(encoding, "replace")))
            loop.call_soon_threadsafe(lines.put_nowait, (self._questions, None))


def _read_piece() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:  # the terminal was closed
        return b""
