"""The commands of a chat, which begin with a slash."""

from __future__ import annotations

import asyncio
from pathlib import Path

from autogen_codeact.cli.chat_agent import sandboxes_of
from autogen_codeact.cli.chat_turns import Turns
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.kept_runs import export_run
from autogen_codeact.cli.models import describe_error
from autogen_codeact.cli.terminal import Terminal, format_size
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.errors import RunError
from codeact_sandbox import SandboxError
from codeact_sandbox.types.filenames import printable

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
    """Runs commands."""

    def __init__(self, turns: Turns, terminal: Terminal) -> None:
        self._turns, self._terminal = turns, terminal
        self._added: dict[str, bool] = {}
        """Names of files, and whether a message has told the model of them."""

    def message(self, text: str) -> str:
        """Return a message with the names of the files that were added before it."""
        names = ", ".join(name for name, told in self._added.items() if not told)
        self._added = dict.fromkeys(self._added, True)
        return f"{text}\n\n(I have put into the working folder: {names})" if names else text

    def _executors(self) -> list[SandboxCodeExecutor]:
        return sandboxes_of(self._turns.conversation.target)

    async def run(self, text: str) -> bool:
        """Run a command; return whether the chat ends."""
        name, _, rest = ("!", "", text[1:]) if text.startswith("!") else text.partition(" ")
        name = name.lower()
        if name in ("/quit", "/exit"):
            return True
        if name not in (*NAMES, "!"):
            self._terminal.line(
                f"There is no command {printable(name)}; /help lists them. To send it as a message, begin it with two slashes.",
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
            self._terminal.line(f"{name} failed: {describe_error(error, self._turns.model)}", "red")
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
        for executor in self._executors():
            names = sorted(name for name in await executor.list_files() if not name.startswith("."))
            for name in names[:MAX_FILES]:
                path = executor.work_dir / name
                size = format_size(path.stat().st_size) if path.is_file() else "only in the sandbox"
                self._terminal.line(f"{printable(name)} ({size})")
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
        for executor in self._executors():
            await executor.put(file)
        self._added[file.name] = False
        self._terminal.line(
            f"Added {file.name} ({format_size(file.stat().st_size)}). Your next message tells the model."
        )

    async def _shell(self, command: str) -> None:
        for executor in self._executors()[:1] if command else ():
            result = await self._turns.guarded(executor.run(command, "sh"))
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
        for executor in self._executors()[:1]:
            forward = await self._turns.guarded(executor.forward(int(port)))
            if forward is not None:
                self._terminal.line(
                    f"{forward.url} leads to port {port} of the sandbox, while this chat runs. Its page can use your network."
                )

    async def _reset(self, _: str) -> None:
        await self._turns.guarded(self._turns.conversation.reset())
        self._terminal.line("The conversation starts again, with an empty session. Files stay as they are.")

    async def _export(self, name: str) -> None:
        path = self._turns.conversation.path
        if path is None or not self._turns.conversation.has_begun:
            raise CommandError("There is nothing to export: nothing was said yet, or --save none keeps no log.")
        if not name:
            raise CommandError("Which file? /export chat.html, chat.ipynb, chat.json, or /export FOLDER for the files.")
        kinds = {".ipynb": "notebook", ".json": "json_file", ".html": "page"}
        file = _path(name)
        if file.suffix and file.suffix.lower() not in kinds:
            raise CommandError("An export ends in .html, .ipynb or .json; a folder for the files has no ending.")
        await asyncio.to_thread(export_run, path, **{kinds.get(file.suffix.lower(), "files"): file})


def _path(text: str) -> Path:
    return Path(text).expanduser()
