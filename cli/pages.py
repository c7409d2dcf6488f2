"""Runs in a browser: `codeact view`, and the page of a run that goes on; asking there and in the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse
from autogen_codeact.cli.exit import CommandError, end_by_exception, say
from autogen_codeact.runs.store import EVENTS, find_run, runs_folder
from autogen_codeact.viewer.control import ApprovalQuestion, RunControl
from autogen_codeact.viewer.server import ViewerError, ViewerServer, is_loopback
from codeact_sandbox.tools.terminal import Question, ask
from codeact_sandbox.types.filenames import printable

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
YES, ALL, NO = ("y", "yes"), ("a", "all"), ("n", "no", "")
PROMPT = "Run this code? [y]es, [a]ll of this run, or why not (Enter: no): "
_MAX_REASON = 1_000
_LINGER_S = 5.0


def view(target: str | None, *, host: str, port: int, open_browser: bool) -> int:
    """Serve the viewer until Ctrl-C."""
    folder = runs_folder() if target is None else _folder(target)
    end_by_exception()
    with _as_command_error():
        server = ViewerServer(folder, host=host, port=port)
        server.start()
    try:
        with suppress(KeyboardInterrupt):
            print(server.url, flush=True)  # noqa: T201 - it is the output
            if not is_loopback(host):
                say(
                    f"warning: everybody who can reach {host} and has this address sees the runs, and the connection is not "
                    "encrypted"
                )
            if open_browser:
                open_page(server.url)
            if sys.stderr.isatty():
                say("Ctrl-C ends the viewer")
            threading.Event().wait()
    finally:
        server.stop()
    return 0


@contextmanager
def _as_command_error() -> Iterator[None]:
    try:
        yield
    except ViewerError as error:
        raise CommandError(str(error)) from None


def open_page(url: str) -> None:
    """Open a page in the user's browser, in the background; without a display nothing happens."""
    if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
        return

    def opening() -> None:
        with suppress(OSError, webbrowser.Error):
            webbrowser.open(url)

    threading.Thread(target=opening, name="browser", daemon=True).start()


def _folder(target: str) -> Path:
    path = Path(target)
    if path.is_dir() and not os.path.lexists(path / EVENTS):
        return path
    run = find_run(target)
    if not run.is_dir():
        raise CommandError(f"{run} {'is not a folder' if os.path.lexists(run) else 'does not exist'}.")
    return run


class LivePage:
    """The page of a run that goes on."""

    def __init__(self, run: Path, stop: Callable[[], object]) -> None:
        self.control = RunControl(run, stop)
        """What the buttons do."""
        with _as_command_error():
            self._server = ViewerServer([run], control=self.control)

    @property
    def url(self) -> str:
        """Its address."""
        return self._server.url

    async def open(self) -> None:
        """Serve it, say where, and open it in a browser if there is a display."""
        with _as_command_error():
            await asyncio.to_thread(self._server.start)
        say(f"the page of this run: {self.url}")
        open_page(self.url)

    def close(self, *, wait: bool) -> None:
        """End it."""
        try:
            if wait and sys.stderr.isatty() and threading.current_thread() is threading.main_thread():
                say("the page can be looked at until Ctrl-C")
                end_by_exception()
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
        finally:
            self._server.stop(_LINGER_S)


async def first_answer(
    terminal: Awaitable[ApprovalResponse], control: RunControl | None, code: str
) -> ApprovalResponse:
    """Ask in the terminal and on the page, and return the first answer; the other question is withdrawn."""
    in_terminal = asyncio.ensure_future(terminal)
    pages = {asyncio.ensure_future(_on_page(control, code))} if control is not None else set()
    waiting: set[asyncio.Future[ApprovalResponse]] = {in_terminal, *pages}
    nobody = ApprovalResponse(approved=False, reason="there is nobody to ask")
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                try:
                    return each.result()
                except EOFError as error:
                    nobody = ApprovalResponse(approved=False, reason=str(error))
        return nobody
    finally:
        for each in waiting:
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*waiting, return_exceptions=True)


async def _on_page(control: RunControl, code: str) -> ApprovalResponse:
    try:
        approved = await control.ask(ApprovalQuestion("code", code))
    except ValueError as error:
        raise EOFError(f"the code can't be shown on the page: {error}") from None
    return ApprovalResponse(approved=approved, reason="" if approved else "the person said no on the run's page")


class CodeApproval:
    """Asks whether code may run, in the terminal and on the page at once; pass it as `approval_func`."""

    def __init__(self, control: RunControl | None, pause: Callable[[], object]) -> None:
        self._control = control
        self._pause = pause
        self._all = False

    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask, unless the user has allowed all code."""
        if self._all:
            return ApprovalResponse(approved=True, reason="all code of this run was approved")
        self._pause()
        return await first_answer(self._in_terminal(request.code), self._control, request.code)

    async def _in_terminal(self, code: str) -> ApprovalResponse:
        text = "\n".join(map(printable, code.splitlines()))
        question = Question("the code", f"The model wants to run this code:\n{text}\n", PROMPT, YES + ALL)
        answer = (await ask(question)).strip()
        word = answer.lower()
        if word in YES or word in ALL:
            self._all = word in ALL
            return ApprovalResponse(approved=True, reason="")
        reason = "the person said no" if word in NO else f"the person said no: {answer[:_MAX_REASON]}"
        return ApprovalResponse(approved=False, reason=reason)
