"""`codeact mcp --http`: sandboxes for many MCP clients over streamable HTTP, one for each session."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import signal
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.session.keyed_sandboxes import KeyedSandboxes

PATH = "/mcp"
MAX_SESSIONS, IDLE_S = 8, 600.0
MAX_FORGOTTEN = 1000  # sessions that have ended and whose next call is told so
SHUTDOWN_S = 3
REFUSED = {
    401: "send the token as Authorization: Bearer",
    403: "other origin",
    404: "use /mcp",
    421: "use an address or localhost",
}
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[None]]


class Sessions(KeyedSandboxes):
    """The sandboxes of all clients.

    Args:
        most: Sessions at the same time. For a further one, that which was not used for longest is ended.
        idle_s: Seconds without a call after which a session is ended.
    """

    def __init__(self, make: Callable[[], AsyncSandbox], most: int, idle_s: float) -> None:
        super().__init__(most)
        self._make, self._idle_s = make, idle_s
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    @contextlib.asynccontextmanager
    async def of_call(self, key: str | None, handle: str) -> AsyncIterator[tuple[AsyncSandbox, list[str]]]:
        """Yield the sandbox that a call is for, and notes about it."""
        if handle and handle not in self:
            raise ValueError(
                f"there is no session {handle!r:.50}: it has ended. Leave `session` out to begin a new one."
            )
        name = handle or key or secrets.token_urlsafe(12)
        notes = []
        if name not in self:
            if key is None:
                notes.append(
                    f'Session: pass session="{name}" to the next calls, to go on with its variables and files.'
                )
            elif name in self._forgotten:
                notes.append("This is a new session: the one before has ended, with its variables and files.")
        async with self.use(name, self._make, self._idle_s) as sandbox:
            yield sandbox, notes

    async def end(self, key: str) -> None:
        """End a client's sandbox, and remember that it had one."""
        if key in self:
            self._forgotten[key] = None
            while len(self._forgotten) > MAX_FORGOTTEN:
                self._forgotten.popitem(last=False)
        await super().end(key)


class Guard:
    """Lets requests pass that have the token and come from where they may, and ends the sessions that clients close."""

    def __init__(self, app: App, token: str | None, on_delete: Callable[[str], Awaitable[None]]) -> None:
        self._app, self._token, self._on_delete = app, token, on_delete

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        if (status := self._refusal(scope, headers)) is not None:
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": REFUSED[status].encode()})
            return
        await self._app(scope, receive, send)
        if scope["method"] == "DELETE":
            await self._on_delete(headers.get("mcp-session-id", ""))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> int | None:
        host = headers.get("host", "")
        if not _is_own(_host_of(f"//{host}")):
            return 421
        origin = headers.get("origin", "")
        if origin and origin != f"http://{host}" and not is_loopback(_host_of(origin)):
            return 403
        given = headers.get("authorization", "").encode("latin-1")
        if self._token is not None and not secrets.compare_digest(given, f"Bearer {self._token}".encode()):
            return 401
        return None if scope["path"].rstrip("/") == PATH else 404


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_own(host: str) -> bool:
    """Return whether a name is this machine's own; a number can't be made to lead here, as a name can (DNS rebinding)."""
    try:
        return host in ("localhost", socket.gethostname().lower()) or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def parse_address(text: str) -> tuple[str, int]:
    """Read `[HOST:]PORT`; the host is 127.0.0.1 by default."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: write PORT or HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def listen(app: App, sessions: Sessions, address: tuple[str, int], token: str | None) -> int:
    import uvicorn  # noqa: PLC0415 - a server on standard input and output needs none

    host, port = address
    if token is None and not is_loopback(host):
        raise ValueError(
            f"{host} is reached by other machines, so a token is needed: set the variable CODEACT_MCP_TOKEN."
        )
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:  # without the address that Python adds to the text of the system
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ValueError(f"can't listen on {host}, port {port}: {reason}. Give --http another [HOST:]PORT.") from error
    guard: Any = Guard(app, token, sessions.end)
    config = uvicorn.Config(guard, log_level="warning", lifespan="on", timeout_graceful_shutdown=SHUTDOWN_S)
    server: Any = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # the sessions are ended before the process
    loop, ended_by = asyncio.get_running_loop(), signal.SIGINT

    def end(number: signal.Signals) -> None:
        nonlocal ended_by
        ended_by, server.should_exit = number, True

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, end, number)
    shown = f"[{host}]" if ":" in host else host
    uvicorn.config.logger.setLevel("INFO")  # uvicorn's own lines are not wanted
    uvicorn.config.logger.info("serving MCP at http://%s:%d%s", shown, listener.getsockname()[1], PATH)
    uvicorn.config.logger.setLevel("WARNING")
    try:
        await server.serve([listener])
    finally:
        await sessions.end_all()
    return 128 + ended_by
