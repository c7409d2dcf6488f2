"""HTTP requests to addresses that have been checked: the transport looks up no name."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Sequence

import httpx

from codeact_sandbox.egress.connector import CONNECT_TIMEOUT_S
from codeact_sandbox.types.host_names import Address


class PinnedTransport(httpx.AsyncBaseTransport):
    """Sends the requests to one host to the first of its addresses that can be connected to.

    Make one for each request: another host may have the same address, and its certificate has to be checked, too.
    """

    def __init__(self, addresses: Sequence[Address], verify: ssl.SSLContext | bool) -> None:
        self._addresses = addresses
        self._transport = httpx.AsyncHTTPTransport(verify=verify, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its headers, and its TLS, name the host."""
        for address in self._addresses[:-1]:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._send(request, address)
        return await self._send(request, self._addresses[-1])

    async def _send(self, request: httpx.Request, address: Address) -> httpx.Response:
        timeout = {**request.extensions["timeout"], "connect": CONNECT_TIMEOUT_S / len(self._addresses)}
        extensions = {"sni_hostname": request.url.raw_host.decode("ascii"), "timeout": timeout}
        url = request.url.copy_with(host=str(address))
        return await self._transport.handle_async_request(
            httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)
        )

    async def aclose(self) -> None:
        """Close its connection."""
        await self._transport.aclose()
