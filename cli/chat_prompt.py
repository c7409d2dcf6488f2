"""The editor of a chat: prompt_toolkit, with history, several lines, and a prompt that is written once."""

from __future__ import annotations

import os
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

from autogen_codeact.cli.chat_lines import Interrupted
from autogen_codeact.cli.exit import CommandError

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output.vt100 import Vt100_Output
except ImportError:
    raise CommandError(
        "The editor of `codeact chat` is an extra: pip install 'autogen-codeact[chat]'. Without it: TERM=dumb codeact chat …"
    ) from None

# Private characters, which the output replaces. Editing redraws the line, and so would the prompt be written again and again;
# a program that waits for it must see it once for each message. A plain space at the end would not be written at all.
_SIGN, _SPACE = "\ue0b0", "\ue0b1"
_MAX_HISTORY_BYTES = 1024 * 1024


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
        stream: Any = getattr(sys.stdout, "unfiltered", sys.stdout)
        output = cls.from_pty(stream, term=os.environ.get("TERM"))
        assert isinstance(output, cls)
        output.enable_cpr = False  # who answers late, or never, would get a warning into the line
        return output

    def new_prompt(self) -> None:
        """Write the next prompt."""
        self._drawn = 0

    def write(self, data: str) -> None:
        """Write text."""
        if data in (_SIGN, _SPACE):
            place = 1 if data == _SIGN else 2
            if self._drawn & place:
                self.cursor_forward(1)
                return
            self._drawn |= place
            data = ">" if data == _SIGN else " "
        super().write(data)

    def erase_down(self) -> None:
        """Erase what is below, with the prompt."""
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
