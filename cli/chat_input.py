"""Reads what the user of a chat types: with prompt_toolkit in a terminal, else line by line."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
from collections.abc import Iterable
from contextlib import suppress

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.output import can_erase, printable, unfiltered

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output.vt100 import Vt100_Output
    from prompt_toolkit.shortcuts import CompleteStyle
except ImportError:
    raise CommandError("`codeact chat` needs an extra: pip install 'autogen-codeact[chat]'.") from None

MAX_LINE_BYTES = 4 * 1024 * 1024
_SPACE = "\ue0b1"
"""A private character, which stands for a space."""


class Interrupted(Exception):
    """Ctrl-C was pressed while a line was typed."""


def open_reader() -> Reader:
    """Return the editor of this terminal, or a reader of lines."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return PromptReader() if on_terminal and can_erase() else LineReader()


class LineReader:
    """Reads lines from a pipe, a file or a simple terminal: each is a message or an answer.

    The methods raise `EOFError` at the end, and `Interrupted` after Ctrl-C.
    """

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

    def __init__(self) -> None:
        self._session, self._questions = _new_session(_Completer()), _new_session()
        self._asking: PromptSession[str] | None = None

    async def message(self) -> str:
        """Show the prompt, and read a message."""
        return await self._ask(self._session, "> ")

    async def answer(self, question: str) -> str:
        """Ask a question; what was typed before it does not count."""
        with suppress(termios.error, OSError, ValueError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        clear_typeahead(self._questions.app.input)  # what came with the Enter that sent the message
        return await self._ask(self._questions, question)

    async def _ask(self, session: PromptSession[str], prompt: str) -> str:
        self._asking = session
        try:
            text = await session.prompt_async([("", prompt.removesuffix(" ") + _SPACE)], handle_sigint=False)
        finally:
            self._asking = None
        return text.rstrip("\n")

    def interrupt(self) -> bool:
        """End the present question."""
        if self._asking is None or not self._asking.app.is_running:
            return False
        self._asking.app.exit(exception=Interrupted())
        return True


Reader = LineReader | PromptReader


class _Output(Vt100_Output):
    """Writes the space at the end of a prompt, which prompt_toolkit leaves out."""

    def write(self, data: str) -> None:
        super().write(data.replace(_SPACE, " "))


class _Completer(Completer):
    """What Tab offers: commands, and names of files after two of them; without names that a terminal can't show."""

    _commands = ("/add ", "/export ", "/files", "/help", "/open ", "/quit", "/reset")
    _files = PathCompleter(expanduser=True, file_filter=lambda path: printable(path) == path)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may follow."""
        text = document.text_before_cursor
        name, space, rest = text.partition(" ")
        if name in ("/add", "/export") and space:
            yield from self._files.get_completions(Document(rest), complete_event)
        elif text.startswith("/"):
            yield from (Completion(each, -len(text)) for each in self._commands if each.startswith(text))


def _new_session(completer: Completer | None = None) -> PromptSession[str]:
    output = _Output.from_pty(unfiltered(sys.stdout), term=os.environ.get("TERM"))
    output.enable_cpr = False  # who answers late, or never, would get a warning into the line
    return PromptSession(
        output=output,
        key_bindings=_bindings(),
        multiline=True,
        prompt_continuation="  ",
        completer=completer,
        complete_in_thread=True,  # a folder may be on a slow disk
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,  # lines of text, also for screen readers
    )


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
