"""Access control of the viewer: requests need the token of its address, and pages of other origins are refused."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
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


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class Guard:
    """Refuses requests without the token or from other origins, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app = app
        self._token = token.encode()
        self._host = host.lower().strip("[]")
        self._local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
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
