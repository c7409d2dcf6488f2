"""`codeact view`: the viewer of runs in a browser."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.runs.store import EVENTS, find_run, runs_folder
from autogen_codeact.viewer.server import ViewerError, ViewerServer, is_loopback

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def view(target: str | None, *, host: str, port: int, open_browser: bool) -> int:
    """Serve the viewer until Ctrl-C."""
    folder = runs_folder() if target is None else _folder(target)
    with _interruptible() as interrupted:
        server = served(folder, host=host, port=port)
        try:
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
            interrupted.wait()
        finally:
            server.stop()
    return 0


def served(folder: Path, *, host: str = "127.0.0.1", port: int = 0) -> ViewerServer:
    """Return a started server."""
    try:
        server = ViewerServer(folder, host=host, port=port)
        server.start()
    except ViewerError as error:
        raise CommandError(str(error)) from None
    return server


def open_page(url: str) -> None:
    """Open a page in the user's browser, in the background; without a display nothing happens."""
    if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
        return

    def opening() -> None:
        with contextlib.suppress(OSError, webbrowser.Error):
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


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Have SIGINT and SIGTERM set an event instead of ending the process."""
    interrupted = threading.Event()
    before = {number: signal.signal(number, lambda *_: interrupted.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
