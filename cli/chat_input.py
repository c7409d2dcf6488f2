"""Reads what the user of a chat types: with prompt_toolkit in a terminal, else line by line."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.output import printable, unfiltered

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output.vt100 import Vt100_Output
except ImportError:
    raise CommandError("`codeact chat` needs an extra: pip install 'autogen-codeact[chat]'.") from None

MAX_LINE_BYTES = 4 * 1024 * 1024
# Private characters, which the output replaces. Editing redraws the line, and so would the prompt be written again and again;
# a program that waits for it must see it once for each message. A plain space at the end would not be written at all.
_SIGN, _SPACE = "\ue0b0", "\ue0b1"
_MAX_HISTORY_BYTES = 1024 * 1024


class Interrupted(Exception):
    """Ctrl-C was pressed while a line was typed."""


class Reader(Protocol):
    """Reads messages and answers of the user."""

    async def message(self) -> str:
        """Show the prompt and return what was typed; raise `EOFError` at the end, `Interrupted` after Ctrl-C."""
        ...

    async def answer(self, question: str) -> str:
        """Ask a question and return the line that was typed after it was shown; errors as of `message`."""
        ...

    def interrupt(self) -> bool:
        """End the present `message` or `answer` with `Interrupted`; return whether there was one."""
        ...


def open_reader(history: str | None) -> Reader:
    """Return the editor of this terminal, with a file of what was typed in earlier chats; or a reader of lines."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not on_terminal or os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown", ""):
        return LineReader()
    return PromptReader(history)


class LineReader:
    """Reads lines from a pipe, a file or a simple terminal: each is a message or an answer."""

    def __init__(self) -> None:
        # Not `sys.stdin`: its lock, which a waiting thread would hold at the end of the process, ends that with an error.
        self._input = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - it is used until the process ends
        self._echo = not sys.stdin.isatty()
        self._reading: asyncio.Future[bytes] | None = None
        self._waiting: asyncio.Future[bytes] | None = None

    async def message(self) -> str:
        """Show the prompt, and read a line."""
        return await self._line("> ")

    async def answer(self, question: str) -> str:
        """Ask a question, and read a line; at a terminal, what was typed before it does not count."""
        if not self._echo:
            with suppress(termios.error, OSError):
                termios.tcflush(0, termios.TCIFLUSH)
        return await self._line(question)

    def interrupt(self) -> bool:
        """End the present question."""
        if self._waiting is None or self._waiting.done():
            return False
        self._waiting.set_exception(Interrupted())
        return True

    async def _line(self, prompt: str) -> str:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        if self._reading is None:  # else the one that was interrupted still waits for its line
            self._reading = loop.create_future()
            threading.Thread(target=self._read, args=(loop, self._reading), name="chat-input", daemon=True).start()
        self._waiting = loop.create_future()
        done, _ = await asyncio.wait({self._reading, self._waiting}, return_when=asyncio.FIRST_COMPLETED)
        if self._waiting in done:
            sys.stdout.write("\n")
        line = done.pop().result()
        self._reading, self._waiting = None, None
        text = line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n")
        if self._echo or not line:  # no terminal has shown it
            print(printable(text))  # noqa: T201 - as a terminal would
        if not line:
            raise EOFError
        return text

    def _read(self, loop: asyncio.AbstractEventLoop, result: asyncio.Future[bytes]) -> None:
        """Read a line. In a thread, because a file can't be watched; daemonic, because it may wait for ever."""
        line = b""
        with suppress(OSError):  # the terminal was closed
            line = self._input.readline(MAX_LINE_BYTES)
        with suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(result.set_result, line)


class PromptReader:
    """Reads messages with prompt_toolkit: Enter sends, Alt-Enter begins a new line, a paste of several lines is one message."""

    def __init__(self, history: str | None) -> None:
        self._output = _Output.on_standard_output()
        self._session: PromptSession[str] = self._new_session(_open_history(history))
        self._questions: PromptSession[str] = self._new_session(InMemoryHistory())
        self._asking: PromptSession[str] | None = None

    def _new_session(self, history: History) -> PromptSession[str]:
        session: PromptSession[str] = PromptSession(
            output=self._output,
            key_bindings=_bindings(),
            history=history,
            multiline=True,
            prompt_continuation="  ",
            complete_while_typing=False,
        )
        _draw_once(session)
        return session

    async def message(self) -> str:
        """Show the prompt, and read a message."""
        return await self._ask(self._session, f"{_SIGN}{_SPACE}")

    async def answer(self, question: str) -> str:
        """Ask a question; what was typed before it does not count."""
        with suppress(termios.error, OSError, ValueError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        clear_typeahead(self._questions.app.input)  # what came with the Enter that sent the message
        return await self._ask(self._questions, question.removesuffix(" ") + _SPACE)

    async def _ask(self, session: PromptSession[str], prompt: str) -> str:
        self._output.new_prompt()
        self._asking = session
        try:
            text = await session.prompt_async([("", prompt)], handle_sigint=False)
        finally:
            self._asking = None
        return text.rstrip("\n")

    def interrupt(self) -> bool:
        """End the present question."""
        if self._asking is None or not self._asking.app.is_running:
            return False
        self._asking.app.exit(exception=Interrupted())
        return True


class _Output(Vt100_Output):
    """Writes the characters of the prompt when they are first drawn, and then only moves over them."""

    _drawn = 0

    @classmethod
    def on_standard_output(cls) -> _Output:
        """Return the output on the terminal, without the escaping of `output.py`."""
        stream: Any = unfiltered(sys.stdout)
        output = cls.from_pty(stream, term=os.environ.get("TERM"))
        assert isinstance(output, cls)
        output.enable_cpr = False  # who answers late, or never, would get a warning into the line
        return output

    def new_prompt(self) -> None:
        self._drawn = 0

    def write(self, data: str) -> None:
        if data in (_SIGN, _SPACE):
            place = 1 if data == _SIGN else 2
            if self._drawn & place:
                self.cursor_forward(1)
                return
            self._drawn |= place
            data = ">" if data == _SIGN else " "
        super().write(data)

    def erase_down(self) -> None:
        self._drawn = 0
        super().erase_down()


def _draw_once(session: PromptSession[str]) -> None:
    """Have the last drawing of a line leave what is there: prompt_toolkit erases the line and writes it once more."""
    renderer: Any = session.app.renderer
    draw = renderer.render

    def render(app: Any, layout: Any, is_done: bool = False) -> None:
        draw(app, layout)
        if is_done:
            screen = renderer.last_rendered_screen
            below = (screen.height if screen is not None else 1) - renderer._cursor_pos.y
            session.output.write_raw("\r\n" * max(1, below))
            renderer.reset()

    renderer.render = render


def _bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=Interrupted())

    return keys


def _open_history(file: str | None) -> History:
    """Return the history in a file that only this user can read; in memory if there is none."""
    if file is None:
        return InMemoryHistory()
    path = Path(file)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        if path.stat().st_size > _MAX_HISTORY_BYTES:
            history = path.read_bytes()[-_MAX_HISTORY_BYTES // 2 :]
            path.write_bytes(history[history.find(b"\n\n") + 1 :])
    except OSError:
        return InMemoryHistory()
    return FileHistory(file)
