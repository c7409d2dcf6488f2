"""What the user of a chat types: reading it, with prompt_toolkit or line by line, and the commands, which begin with a slash."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from autogen_codeact.cli.kept_runs import export_run
from autogen_codeact.cli.models import describe_error
from autogen_codeact.cli.output import CommandError, can_erase, printable, unfiltered
from autogen_codeact.cli.terminal import Terminal, format_size
from autogen_codeact.runs.errors import RunError
from codeact_sandbox import SandboxError
from codeact_sandbox.types import filenames

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

MAX_FILES = 100
_COMMANDS = {
    "/help": "this list",
    "/add FILE": "copy a file of this machine into the workspace; the next message says so",
    "/files": "files of the workspace, and where they are on this machine",
    "/open PORT": "let this machine's browser reach a server that code has started in the sandbox",
    "/reset": "forget the conversation, and begin with an empty session",
    "/export FILE": "write a page (.html), a notebook (.ipynb) or all events (.json); or the files of the code into a new folder",
}
NAMES = [each.partition(" ")[0] for each in _COMMANDS]
_KEYS = (
    "Enter sends a message. Alt-Enter (or Esc, then Enter) begins a new line. A paste of several lines is one message. "
    "Tab completes commands and, after /add and /export, names of files. Arrow up: earlier messages. Ctrl-C stops the code "
    "that runs, a second one ends the turn, a third one leaves. To send a message that begins with / or !, type it twice."
)


class Commands:
    def __init__(self, chat: Any, terminal: Terminal) -> None:
        self._chat, self._terminal = chat, terminal
        self._added: dict[str, bool] = {}
        """Names of files, and whether a message has told the model of them."""

    def message(self, text: str) -> str:
        """Return a message with the names of the files that were added before it."""
        names = ", ".join(name for name, told in self._added.items() if not told)
        self._added = dict.fromkeys(self._added, True)
        return f"{text}\n\n(I have put into the working folder: {names})" if names else text

    async def run(self, text: str) -> bool:
        """Run a command; return whether the chat ends."""
        name, _, rest = ("!", "", text[1:]) if text.startswith("!") else text.partition(" ")
        name = name.lower()
        if name in ("/quit", "/exit"):
            return True
        if name not in (*NAMES, "!"):
            self._terminal.line(
                f"There is no command {filenames.printable(name)}; /help lists them. To send it as a message, begin it "
                "with two slashes.",
                "yellow",
            )
            return False
        try:
            await getattr(self, f"_{name[1:] or 'shell'}")(rest.strip())
        except (CommandError, RunError, SandboxError) as error:
            self._terminal.line(str(error), "yellow")
        except OSError as error:
            self._terminal.line(f"{error.filename}: {error.strerror}" if error.filename else str(error), "yellow")
        except Exception as error:  # noqa: BLE001 - of a foreign agent or model; the conversation must not end with it
            self._terminal.line(f"{name} failed: {describe_error(error, self._chat.model)}", "red")
        return False

    async def _help(self, _: str) -> None:
        for name, what in {
            **_COMMANDS,
            "!COMMAND": "run a shell command in the sandbox; the model does not see it",
            "/quit": "leave; so do exit, quit and Ctrl-D",
        }.items():
            self._terminal.field(name, what, "cyan", indent=16)
        self._terminal.line()
        self._terminal.field("", _KEYS, indent=0)

    async def _files(self, _: str) -> None:
        for executor in self._chat.sandboxes():
            names = sorted(name for name in await executor.list_files() if not name.startswith("."))
            for name in names[:MAX_FILES]:
                path = executor.work_dir / name
                size = format_size(path.stat().st_size) if path.is_file() else "only in the sandbox"
                self._terminal.line(f"{filenames.printable(name)} ({size})")
            if len(names) > MAX_FILES:
                self._terminal.line(f"… and {len(names) - MAX_FILES} more")
            self._terminal.line(
                f"{'On this machine' if names else 'No files in'}: {executor.work_dir.absolute()}", "dim"
            )

    async def _add(self, name: str) -> None:
        if not name:
            raise CommandError("Which file? /add sales.csv copies it into the workspace.")
        file = _path(name)
        if not file.is_file():
            raise CommandError(f"{file} is {'not a file' if file.exists() else 'not there'}: give the path of a file.")
        for executor in self._chat.sandboxes():
            await executor.put(file)
        self._added[file.name] = False
        self._terminal.line(
            f"Added {file.name} ({format_size(file.stat().st_size)}). Your next message tells the model."
        )

    async def _shell(self, command: str) -> None:
        for executor in self._chat.sandboxes()[:1] if command else ():
            result = await self._chat.guarded(executor.run(command, "sh"))
            if result is not None:
                if result.output:
                    self._terminal.line(result.output.rstrip("\n"))
                if result.exit_code:
                    self._terminal.line(f"[exit code {result.exit_code}]", "red")

    async def _open(self, port: str) -> None:
        if not port.isdecimal():
            raise CommandError(
                "Which port? /open 8000 prints the address of a server that code has started on port 8000."
            )
        for executor in self._chat.sandboxes()[:1]:
            forward = await self._chat.guarded(executor.forward(int(port)))
            if forward is not None:
                self._terminal.line(
                    f"{forward.url} leads to port {port} of the sandbox, while this chat runs. Its page can use your network."
                )

    async def _reset(self, _: str) -> None:
        await self._chat.guarded(self._chat.conversation.reset())
        self._terminal.line("The conversation starts again, with an empty session. Files stay as they are.")

    async def _export(self, name: str) -> None:
        path = self._chat.conversation.path
        if path is None or not self._chat.conversation.has_begun:
            raise CommandError("There is nothing to export: nothing was said yet, or --save none keeps no log.")
        if not name:
            raise CommandError("Which file? /export chat.html, chat.ipynb, chat.json, or /export FOLDER for the files.")
        file = _path(name)
        kind = file.suffix.lower().removeprefix(".") or "files"
        if kind not in ("html", "ipynb", "json", "files"):
            raise CommandError("An export ends in .html, .ipynb or .json; a folder for the files has no ending.")
        await asyncio.to_thread(export_run, path, {kind: file})


def _path(text: str) -> Path:
    return Path(text).expanduser()


MAX_LINE_BYTES = 4 * 1024 * 1024


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
            text = await session.prompt_async(prompt, handle_sigint=False)
        finally:
            self._asking = None
        return text.rstrip("\n")

    def interrupt(self) -> bool:
        if self._asking is None or not self._asking.app.is_running:
            return False
        self._asking.app.exit(exception=Interrupted())
        return True


Reader = LineReader | PromptReader


class _Completer(Completer):
    """What Tab offers: commands, and names of files after two of them; without names that a terminal can't show."""

    _commands = ("/add ", "/export ", "/files", "/help", "/open ", "/quit", "/reset")
    _files = PathCompleter(expanduser=True, file_filter=lambda path: printable(path) == path)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        name, space, rest = text.partition(" ")
        if name in ("/add", "/export") and space:
            yield from self._files.get_completions(Document(rest), complete_event)
        elif text.startswith("/"):
            yield from (Completion(each, -len(text)) for each in self._commands if each.startswith(text))


def _new_session(completer: Completer | None = None) -> PromptSession[str]:
    output = Vt100_Output.from_pty(unfiltered(sys.stdout), term=os.environ.get("TERM"))
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
