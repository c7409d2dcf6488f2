"""HTTP requests to addresses that have been checked: the transport looks up no name."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence

import httpx

from autogen_codeact.sandbox.egress.connector import CONNECT_TIMEOUT_S
from autogen_codeact.sandbox.types.host_names import Address


@contextlib.asynccontextmanager
async def request(
    url: httpx.URL,
    host: str,
    addresses: Sequence[Address],
    *,
    verify: ssl.SSLContext | bool,
    headers: Mapping[str, str],
    method: str = "GET",
    read_timeout_s: float | None = None,
) -> AsyncIterator[httpx.Response]:
    """Send a request to the first of some addresses that can be connected to.

    Args:
        url: The URL.
        host: Its host, for the header and for TLS.
        addresses: Where the host is, at least one.
        verify: How a certificate is checked.
        headers: Further headers.
        method: The method. Default GET.
        read_timeout_s: Seconds that may pass without a byte. Default None: no limit.

    Raises:
        httpx.TransportError: There is no connection, or it broke.
    """
    # One for each request: another host may have the same address, and its certificate has to be checked, too.
    async with httpx.AsyncHTTPTransport(verify=verify, trust_env=False) as transport:
        timeout = httpx.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S / len(addresses))
        requests = [
            httpx.Request(
                method,
                url.copy_with(host=str(address)),
                headers={"Host": url.copy_with(host=host).netloc.decode(), **headers},
                extensions={"sni_hostname": host, "timeout": timeout.as_dict()},
            )
            for address in addresses
        ]
        response = await _first_connected(transport, requests)
        try:
            yield response
        finally:
            await response.aclose()


async def _first_connected(transport: httpx.AsyncHTTPTransport, requests: Sequence[httpx.Request]) -> httpx.Response:
    for each in requests[:-1]:
        with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
            return await transport.handle_async_request(each)
    return await transport.handle_async_request(requests[-1])
