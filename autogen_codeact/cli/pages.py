"""Runs in a browser: `codeact view`, and the page of a run that goes on."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path

from autogen_codeact.cli.output import CommandError, end_by_exception, say
from autogen_codeact.runs.store import EVENTS, find_run, runs_folder
from autogen_codeact.viewer.control import RunControl
from autogen_codeact.viewer.server import ViewerServer, is_loopback
from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.types.errors import SandboxError

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_LINGER_S = 5.0
_REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>codeact</title>'
    '<meta http-equiv="refresh" content="0;url={0}"><p><a href="{0}">The page of codeact</a></p>\n'
)


def view(target: str | None, *, host: str, port: int, open_browser: bool) -> int:
    """Serve the viewer until Ctrl-C."""
    folder = runs_folder() if target is None else _folder(target)
    end_by_exception()
    server = ViewerServer(folder, host=host, port=port)
    server.start()
    try:
        with suppress(KeyboardInterrupt):
            if not is_loopback(host):
                say(
                    f"warning: whoever reaches {host} and has this address sees the runs; the connection is not encrypted"
                )
            print(server.url, flush=True)  # noqa: T201 - it is the output
            opened = open_page(server.url) if open_browser else None  # noqa: F841 - it is removed with this frame
            if sys.stderr.isatty():
                say("Ctrl-C ends the viewer")
            threading.Event().wait()
    finally:
        server.stop()
    return 0


def open_page(url: str) -> TemporaryFolder | None:
    """Open a page in the user's browser, in the background; without a display nothing happens.

    The address is a key, and all users of the machine can read the arguments of a browser: it gets that of a private file, which
    stays as long as what is returned.
    """
    if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
        return None
    with suppress(OSError, SandboxError):  # the address has been printed
        folder = TemporaryFolder()
        file = folder.path / "open.html"
        file.touch(0o600)
        file.write_text(_REDIRECT.format(escape(url)), encoding="utf-8")

        def opening() -> None:
            with suppress(OSError, webbrowser.Error):
                webbrowser.open(file.as_uri())

        threading.Thread(target=opening, name="browser", daemon=True).start()
        return folder
    return None


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
        self.control = RunControl(run, stop)  # what the buttons do
        self._server = ViewerServer([run], control=self.control)
        self._opened: TemporaryFolder | None = None

    async def open(self) -> None:
        """Serve it, say where, and open it in a browser if there is a display."""
        await asyncio.to_thread(self._server.start)
        say(f"the page of this run: {self._server.url}")
        self._opened = open_page(self._server.url)

    def close(self, *, wait: bool) -> None:
        try:
            if wait and sys.stderr.isatty() and threading.current_thread() is threading.main_thread():
                say("the page can be looked at until Ctrl-C")
                end_by_exception()
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
        finally:
            self._opened = None
            self._server.stop(_LINGER_S)
