"""Serves the viewer, in a thread and an event loop of its own, so that a slow page never slows a run."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from autogen_codeact.batch.folder import RUNS
from autogen_codeact.viewer.batches import BatchTable, has_results
from autogen_codeact.viewer.catalog import Catalog
from autogen_codeact.viewer.control import RunControl
from autogen_codeact.viewer.security import Guard, is_loopback, new_token

MISSING = "The viewer needs the extra `viewer`: pip install 'autogen-codeact[viewer]'"
_START_S = 30.0
_STOP_S = 5.0
_BACKLOG = 128


class ViewerError(RuntimeError):
    """The viewer can't be served; the message says why, and what to do."""


class ViewerServer:
    """A server of the viewer, with the arguments of `serve`; it raises `ViewerError`."""

    def __init__(
        self,
        runs: Path | Iterable[Path],
        *,
        control: RunControl | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        try:
            import uvicorn  # noqa: PLC0415 - of an extra

            from autogen_codeact.viewer.app import Viewer, make_app  # noqa: PLC0415 - of an extra
            from autogen_codeact.viewer.connections import BoundedProtocol  # noqa: PLC0415 - of an extra
        except ModuleNotFoundError:
            raise ViewerError(MISSING) from None

        batch = None
        if isinstance(runs, Path) and has_results(runs):
            batch, runs = BatchTable(runs), runs / RUNS
        catalog = Catalog(runs)
        token = new_token()
        self._socket = _listen(host, port)
        address = self._socket.getsockname()
        shown = "localhost" if host == "localhost" else host.strip("[]")
        if shown in ("0.0.0.0", "::"):  # noqa: S104 - it was told so; a user opens it here
            shown = "127.0.0.1" if shown == "0.0.0.0" else "::1"  # noqa: S104
        shown = f"[{shown}]" if ":" in shown else shown
        single = catalog.single
        page = "" if single is None else f"runs/{quote(single, safe='')}"
        self.url = f"http://{shown}:{address[1]}/{token}/{page}"
        """The address to open: the page of the run if there is only one, else the list."""
        self._viewer = Viewer(catalog, control, f"/{token}", batch)
        app = Guard(make_app(self._viewer), token, host)
        config: Any = uvicorn.Config(
            app,
            http=BoundedProtocol,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=32 * 1024,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="viewer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to serve; raises `ViewerError`."""
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ViewerError("The viewer's server did not start.")
            time.sleep(0.01)

    def stop(self, linger_s: float = 0.0) -> None:
        """End, with all connections; wait `linger_s` at most until the pages that watch a run have its end."""
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(linger_s), loop)
            self._thread.join(linger_s + _STOP_S)
        self._socket.close()

    async def _end(self, linger_s: float) -> None:
        if linger_s > 0:
            await self._viewer.let_pages_finish(linger_s)
        self._server.should_exit = True
        await self._viewer.close()  # else the server would wait for the pages that wait

    def _serve(self) -> None:
        async def serving() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serving())


@asynccontextmanager
async def serve(
    runs: Path | Iterable[Path],
    *,
    control: RunControl | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[str]:
    """Serve the viewer for the time of the `async with` block, which gets its address.

    Args:
        runs: A folder with runs in it, the folder of a batch or of one run, or folders of runs, which may not exist yet.
        control: What the buttons of a live run do. Default: there are no buttons.
        host: Address to listen on. Default: this machine only.
        port: Port to listen on. Default: a free one.

    Raises:
        ViewerError: The extra is missing, or the address can't be used.
    """
    server = await asyncio.to_thread(lambda: ViewerServer(runs, control=control, host=host, port=port))
    try:
        await asyncio.to_thread(server.start)
        yield server.url
    finally:
        await asyncio.to_thread(server.stop)


def _listen(host: str, port: int) -> socket.socket:
    name = host.strip("[]")
    if name == "localhost":
        name = "127.0.0.1"
    try:
        version = ipaddress.ip_address(name).version
    except ValueError:
        raise ViewerError(f"--host takes an IP address such as 127.0.0.1, not {host!r}.") from None
    try:
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        return socket.create_server((name, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        reason = f"The viewer can't listen on {host}, port {port}: {why}. Choose others with --host and --port."
        raise ViewerError(reason) from None


__all__ = ["ViewerError", "ViewerServer", "is_loopback", "serve"]
