"""Serves the viewer, in a thread and an event loop of its own, so that a slow page never slows a run; decides who may ask."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from autogen_codeact.batch.folder import RUNS
from autogen_codeact.viewer.catalog import BatchTable, Catalog, has_results
from autogen_codeact.viewer.control import RunControl
from autogen_codeact.viewer.static import CSP

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        token = secrets.token_urlsafe(_TOKEN_BYTES)
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


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_TOKEN_BYTES = 24
_SKIPPED_BYTES = 64 * 1024
_SKIP_S = 1.0


class Guard:
    """Refuses requests without the token or from other origins, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app = app
        self._token = token.encode()
        self._host = host.lower().strip("[]")
        self._local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            await _skip_body(receive)
            await _refuse(_with_headers(send), *refused)
            return
        path = scope["path"][len(self._token) + 1 :] or "/"
        await self._app({**scope, "path": path, "root_path": "", "raw_path": b""}, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0].decode("latin-1")):
            # A page of another name that resolves to this address could otherwise read what is here.
            return 421, "This server does not answer under that host name: use the address that it has printed."
        origins = headers.get(b"origin", [])
        if any(
            origin.decode("latin-1").lower() != f"http://{hosts[0].decode('latin-1').lower()}" for origin in origins
        ):
            return 403, "Requests of other pages are refused."
        if _crosses_sites(headers):
            return 403, "Requests of other pages are refused."
        first = scope["path"].encode("utf-8", "replace").split(b"/", 2)
        if len(first) < 3 or not hmac.compare_digest(first[1], self._token):
            return (
                404,
                "There is nothing here. The address that `codeact view` prints has a token in it; it changes at each start.",
            )
        if scope["method"] == "POST":
            kind = b",".join(headers.get(b"content-type", [])).split(b";")[0].strip().lower()
            if kind != b"application/json":
                return 415, "The request's content type must be application/json."
        return None

    def _is_ours(self, host: str) -> bool:
        """Return whether a Host header names this server: an address, or a name that no other can point to it."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self._host) and name:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._local


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _crosses_sites(headers: dict[bytes, list[bytes]]) -> bool:
    """Return whether a browser says that another site's page has caused the request, other than by a link that was followed."""
    sites = headers.get(b"sec-fetch-site", [])
    if not any(site in (b"cross-site", b"same-site") for site in sites):
        return False
    return headers.get(b"sec-fetch-mode") != [b"navigate"] or headers.get(b"sec-fetch-dest") != [b"document"]


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            added = _HEADERS | {"Content-Security-Policy": CSP}
            message["headers"] = [
                *message["headers"],
                *((n.lower().encode(), v.encode()) for n, v in added.items() if n.lower().encode() not in present),
            ]
        await send(message)

    return sending


async def _skip_body(receive: Receive) -> None:
    """Read a small body: the system resets a connection that is closed with unread data, and the client loses the answer."""
    left = _SKIPPED_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SKIP_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
