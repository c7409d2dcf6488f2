"""Runs in a browser: `codeact view`, and the page of a run that goes on."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autogen_codeact.cli.exit import CommandError, end_by_exception, say
from autogen_codeact.runs.store import EVENTS, find_run, runs_folder
from autogen_codeact.viewer.control import RunControl
from autogen_codeact.viewer.server import ViewerServer, is_loopback

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_LINGER_S = 5.0


def view(target: str | None, compare: Path | None, *, host: str, port: int, open_browser: bool) -> int:
    """Serve the viewer until Ctrl-C."""
    folder = runs_folder() if target is None else _folder(target)
    end_by_exception()
    server = ViewerServer(folder, compare=compare, host=host, port=port)
    server.start()
    try:
        with suppress(KeyboardInterrupt):
            if not is_loopback(host):
                say(
                    f"warning: whoever reaches {host} and has this address sees the runs; the connection is not encrypted"
                )
            print(server.url, flush=True)  # noqa: T201 - it is the output
            if open_browser:
                open_page(server.url)
            if sys.stderr.isatty():
                say("Ctrl-C ends the viewer")
            threading.Event().wait()
    finally:
        server.stop()
    return 0


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
        self.control = RunControl(run, stop)  # what the buttons do
        self._server = ViewerServer([run], control=self.control)

    @property
    def url(self) -> str:
        """Its address."""
        return self._server.url

    async def open(self) -> None:
        """Serve it, say where, and open it in a browser if there is a display."""
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
