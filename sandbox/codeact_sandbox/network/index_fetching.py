"""Requests of the host to package indexes, with its own certificates, proxies and credentials, and with limits."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
import urllib.request
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from codeact_sandbox.host.threads import Threads
from codeact_sandbox.network.connector import (
    CONNECT_TIMEOUT_S,
    MAX_ADDRESSES,
    MAX_THREADS,
    Resolver,
    is_own_address,
    look_up,
)
from codeact_sandbox.network.pip_config import PipConfig
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.host_names import Address, is_address, normalise, to_ascii, why_not_public

MAX_REDIRECTS = 10
TIMEOUT_S = 15.0  # without an answer, as in pip
MAX_REASON = 200
# Services of clouds that hand out credentials, in networks that are private otherwise.
_METADATA = {ipaddress.ip_address(text) for text in ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")}
_IDENTITY = {"Accept-Encoding": "identity", "User-Agent": "autogen-codeact"}
MAX_SHOWN = 300
PORTS = {"http": 80, "https": 443}
Origin = tuple[str, str, int | None]


def origin(url: str) -> Origin:
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or PORTS.get(split.scheme)


def without_user(url: str) -> str:
    split = urlsplit(url)
    return split._replace(netloc=split.netloc.rpartition("@")[2]).geturl()


def shown(url: str) -> str:
    """Return what messages may show of a URL: neither its user nor its query, and not more than `MAX_SHOWN` characters."""
    text = printable(urlsplit(without_user(url))._replace(query="", fragment="").geturl())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class FetchError(Exception):
    """A file or page can't be had; the message is a sentence that contains no credentials."""


class NotFoundError(FetchError):
    """The server says that there is no such page."""


class PinnedTransport(httpx.AsyncBaseTransport):
    """Sends the requests to one host to the first of its addresses that can be connected to.

    Make one for each request: another host may have the same address, and its certificate has to be checked, too.
    """

    def __init__(self, addresses: Sequence[Address], verify: ssl.SSLContext | bool) -> None:
        self._addresses = addresses
        self._transport = httpx.AsyncHTTPTransport(verify=verify, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
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
        await self._transport.aclose()


class Fetcher:
    """Sends the requests. All of it belongs to one event loop."""

    def __init__(self, config: PipConfig, resolve: Resolver) -> None:
        self._config = config
        self._resolve = resolve
        self._threads = Threads(MAX_THREADS, name="codeact-resolve")
        self._users: dict[Origin, tuple[str, str]] = {}
        for url in config.indexes:
            split = urlsplit(url)
            if split.username:
                user = unquote(split.username), unquote(split.password or "")
                self._users.setdefault(origin(url), user)
        self._configured = {origin(url) for url in config.indexes}
        self._clients: dict[bool, httpx.AsyncClient] = {}
        self._context: ssl.SSLContext | None = None

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    @contextlib.asynccontextmanager
    async def open(
        self, url: str, base: str | None = None, *, accept: str = "*/*"
    ) -> AsyncIterator[tuple[httpx.Response, str]]:
        """Send a request and follow redirects; gives the response and the URL where they have led."""
        for _ in range(MAX_REDIRECTS + 1):
            async with self._request(url, base, accept) as response:
                if not response.has_redirect_location:
                    _check_status(response, url)
                    yield response, url
                    return
                base, url = url, _join(url, response.headers["Location"])
        raise FetchError(f"{shown(url)} can't be fetched: more than {MAX_REDIRECTS} redirects")

    @contextlib.asynccontextmanager
    async def _request(self, url: str, base: str | None, accept: str) -> AsyncIterator[httpx.Response]:
        self._check_scheme(url, base)
        headers = {**_IDENTITY, "Accept": accept}
        auth = await asyncio.to_thread(self._credentials, url)
        try:
            clean = httpx.URL(without_user(url))
            async with (
                self._client(url, base) as client,
                client.stream("GET", clean, headers=headers, auth=auth) as response,
            ):
                yield response
        except (httpx.TransportError, httpx.InvalidURL, ssl.SSLError, Refused) as error:
            raise FetchError(f"{shown(url)} can't be fetched: {explain(error)}") from None

    def _credentials(self, url: str) -> tuple[str, str] | None:
        """Return the user and password for a URL, or None; it may block."""
        from requests.utils import get_netrc_auth  # noqa: PLC0415 - only builds and `allow_pip` need it

        if (user := self._users.get(origin(url))) is not None:
            return user
        with contextlib.suppress(UnicodeDecodeError):
            return get_netrc_auth(f"https://{origin(url)[1]}")
        return None

    def _check_scheme(self, url: str, base: str | None) -> None:
        """Apply pip's rule of secure origins, and let no page lead to anything but HTTP."""
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.hostname:
            raise FetchError(f"{shown(url)} is not fetched: only http and https links of an index are followed")
        loopback = split.hostname in ("localhost", "::1") or split.hostname.startswith("127.")
        if split.scheme != "https" and not loopback and not self._is_trusted(url):
            raise FetchError(
                f"{shown(url)} is not fetched: it has no TLS; if that is right, add {split.hostname} to pip's trusted-host"
                + ("" if base is None else " on the host")
            )

    def _is_trusted(self, url: str) -> bool:
        split = urlsplit(url)
        return any(each in (split.hostname, split.netloc.rpartition("@")[2]) for each in self._config.trusted_hosts)

    @contextlib.asynccontextmanager
    async def _client(self, url: str, base: str | None) -> AsyncIterator[httpx.AsyncClient]:
        verify: ssl.SSLContext | bool = False
        if not self._is_trusted(url):
            if self._context is None:
                self._context = await asyncio.to_thread(_make_context, self._config)
            verify = self._context
        is_configured = base is None or origin(url) in self._configured or self._is_trusted(url)
        addresses = None if is_configured else await self._linked_addresses(httpx.URL(without_user(url)), base or url)
        if addresses is None:
            if bool(verify) not in self._clients:
                client = httpx.AsyncClient(verify=verify, proxy=self._config.proxy, timeout=TIMEOUT_S)
                self._clients[bool(verify)] = client
            yield self._clients[bool(verify)]
            return
        async with httpx.AsyncClient(transport=PinnedTransport(addresses, verify), timeout=TIMEOUT_S) as client:
            yield client

    async def _linked_addresses(self, url: httpx.URL, base: str) -> list[Address] | None:
        """Return the checked addresses of a host that an index has chosen; None if a proxy connects to it."""
        name = url.raw_host.decode("ascii")
        try:
            host = normalise(f"[{name}]" if ":" in name else to_ascii(name))
        except ValueError as error:
            raise Refused(str(error)) from None
        port = url.port or PORTS[url.scheme]
        proxied = self._uses_proxy(url)
        if proxied and not is_address(host):
            return None
        addresses = await look_up(self._resolve, host, port, self._threads)
        base_host = urlsplit(base).hostname or ""
        for address in addresses:
            kind = "is the host's own" if is_own_address(address) else why_not_public(address)
            if kind is not None and (_is_off_limits(address) or await self._is_public(base_host)):
                raise Refused(
                    f"it is not followed, because its host has the address {address}, which {kind}; if that is right, add "
                    f"{host} to pip's trusted-host on the host"
                )
        return None if proxied else addresses[:MAX_ADDRESSES]

    async def _is_public(self, host: str) -> bool:
        """Return whether a host is on the public Internet: an index that is not may lead to other hosts that are not.

        Mirrors in a private network need that, also to build the image.
        """
        try:
            found = await look_up(self._resolve, normalise(to_ascii(host)), 443, self._threads)
        except (Refused, ValueError):
            return True
        return any(why_not_public(address) is None for address in found)

    def _uses_proxy(self, url: httpx.URL) -> bool:
        if self._config.proxy:
            return True
        proxies = urllib.request.getproxies()
        return (url.scheme in proxies or "all" in proxies) and not urllib.request.proxy_bypass(url.host)


def _is_off_limits(address: Address) -> bool:
    """Return whether no page may lead there, wherever its index is."""
    special = address.is_loopback or address.is_link_local or address.is_multicast
    return special or address.is_unspecified or address in _METADATA or is_own_address(address)


def _make_context(config: PipConfig) -> ssl.SSLContext:
    cert = config.cert
    try:
        if cert is None:
            context = httpx.create_ssl_context()
            context.load_default_certs()
        elif Path(cert).is_dir():
            context = ssl.create_default_context(capath=cert)
        else:
            context = ssl.create_default_context(cafile=cert)
        if config.client_cert is not None:
            context.load_cert_chain(config.client_cert)
    except OSError as error:
        name = type(error).__name__
        raise FetchError(
            f"the certificates that pip is configured for (cert, client-cert) can't be read: {name}"
        ) from None
    return context


def _join(url: str, location: str) -> str:
    try:
        joined = str(httpx.URL(url).join(location))
        _ = urlsplit(joined).port
    except (httpx.InvalidURL, ValueError):
        raise FetchError(f"{shown(url)} redirects to something that is not a URL") from None
    return joined


def _check_status(response: httpx.Response, url: str) -> None:
    status = response.status_code
    if status in (404, 410):
        raise NotFoundError(f"{shown(url)} does not exist")
    if status in (401, 403):
        raise FetchError(
            f"{shown(url)} refuses this host (status {status}): check the user and password in pip's index-url or netrc"
        )
    if status != 200:
        raise FetchError(f"{shown(url)} answers with status {status}")


def explain(error: Exception) -> str:
    """Return why a request failed, with what to do; without anything that a server has sent."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        return (
            "its certificate is not trusted, for example because a proxy inspects TLS; set pip's cert on the host to a file "
            "with the certificate of its authority"
        )
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no answer in time"
    if isinstance(error, httpx.RemoteProtocolError):
        return "its answer breaks off, or is not HTTP"
    return text[:MAX_REASON] or type(error).__name__
