"""Fetching the text of web pages on the host, by the rules of `allow_domains`."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
import ssl
from collections.abc import Sequence
from concurrent.futures import Future

import httpx

from autogen_codeact.sandbox.egress.connector import MAX_THREADS, Connector, Resolver
from autogen_codeact.sandbox.egress.pinned import PinnedTransport
from autogen_codeact.sandbox.host.threads import Threads
from autogen_codeact.sandbox.types.allowed_domains import Policy, Refused
from autogen_codeact.sandbox.types.host_names import normalise, quoted

MAX_REDIRECTS = 5
MAX_REASON = 200
DECODED_AT_ONCE = 16 * 1024
"""Bytes: no other thread runs meanwhile, and invalid ones take long."""
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "autogen-codeact", "Accept-Encoding": "identity", "Connection": "close"}
_CHARSET = re.compile(r";\s*charset=[\"']?([\w:.-]{1,40})", re.IGNORECASE)
MAX_TYPE = 200
"""Characters of a media type that are read."""
# Decoding the first takes time that grows with the square of the length; the second warns about what it reads.
_NOT_FOR_PAGES = ("punycode", "unicode-escape")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f\\]")


class PageFetcher:
    """Fetches web pages.

    Args:
        allow_domains: Hosts that may be reached, such as "api.example.com" or "*.example.org:443".
        max_bytes: Bytes that a page may have.
        timeout: Seconds that it may take, redirects included.
        resolve: Finds the addresses of names.

    Raises:
        ValueError: A host is invalid.
    """

    def __init__(self, allow_domains: Sequence[str], *, max_bytes: int, timeout: float, resolve: Resolver) -> None:
        self._connector = Connector(Policy(allow_domains), resolve)
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._threads = Threads(MAX_THREADS, idle_s=0, name="codeact-fetch")

    async def fetch(self, url: str) -> str:
        """Fetch a page.

        Returns:
            Its text.

        Raises:
            PermissionError: Its host, or that of a redirection, is not on the list.
            ConnectionError: It can't be fetched.
            TimeoutError: It took too long.
            ValueError: The URL is malformed, or the page is larger than it may be.
        """
        # On an event loop of its own: how a server divides its answer decides for how long it holds one up.
        begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[str]]] = Future()

        async def work() -> str:
            task = asyncio.ensure_future(self._fetch(url))
            begun.set_result((asyncio.get_running_loop(), task))
            return await task

        try:
            return await self._threads.run(lambda: asyncio.run(work()))
        except asyncio.CancelledError:
            begun.add_done_callback(_cancel)
            raise

    async def _fetch(self, url: str) -> str:
        if _NOT_IN_URLS.search(url):
            raise ValueError(f"{quoted(url)} is not a URL: it has a space, a backslash or a control character in it")
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"{quoted(url)} is not a URL: {error}") from None
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(parsed)
        except Refused as refusal:
            kind = PermissionError if refusal.status == 403 else ConnectionError
            raise kind(str(refusal)) from None
        except TimeoutError:
            raise TimeoutError(f"{quoted(url)} was not fetched within {self._timeout:g} s") from None
        except (OSError, httpx.TransportError, httpx.InvalidURL) as error:
            # Cut off, because it may quote what the server has sent.
            reason = str(error)[:MAX_REASON] or type(error).__name__
            raise ConnectionError(f"{quoted(url)} can't be fetched: {reason}") from None

    async def _follow(self, url: httpx.URL) -> str:
        for _ in range(MAX_REDIRECTS + 1):
            host, port = _host_and_port(url)
            addresses = await self._connector.addresses(host, port)
            verify = await asyncio.to_thread(ssl.create_default_context) if url.scheme == "https" else False
            transport = PinnedTransport(addresses, verify)
            async with (
                httpx.AsyncClient(transport=transport, timeout=None) as client,  # noqa: S113 - the caller has one for all
                client.stream("GET", url, headers=_HEADERS) as response,
            ):
                if not response.has_redirect_location:
                    return await self._read(response)
                url = url.join(response.headers["Location"])
        raise ConnectionError(f"more than {MAX_REDIRECTS} redirects")

    async def _read(self, response: httpx.Response) -> str:
        if response.status_code >= 400:
            raise ConnectionError(f"the server says {response.status_code}")
        body = bytearray()
        # Not decompressed: a small body could become a very large one.
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > self._max_bytes:
                raise ValueError(f"the page has more than the {self._max_bytes:,} bytes that may be fetched")
        return _decode(bytes(body), response.headers.get("Content-Type", ""))


def _host_and_port(url: httpx.URL) -> tuple[str, int]:
    """The host of a URL, normalised, and its port."""
    if url.scheme not in _PORTS or not url.host:
        raise ValueError(f"{quoted(str(url))} is not a URL of the web: it begins with http:// or https:// and a host")
    if url.userinfo:
        raise ValueError(f"{quoted(str(url))} has a user in front of the host: leave that out")
    name = url.raw_host.decode("ascii")
    try:
        host = normalise(f"[{name}]" if ":" in name else name)
    except ValueError as error:
        raise Refused(f"{error}, so it is not in allow_domains") from None
    return host, url.port if url.port is not None else _PORTS[url.scheme]


def _cancel(begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[str]]]) -> None:
    loop, task = begun.result()
    with contextlib.suppress(RuntimeError):  # it has been closed
        loop.call_soon_threadsafe(task.cancel)


def _decode(body: bytes, media_type: str) -> str:
    named = _CHARSET.search(media_type[:MAX_TYPE])
    try:
        codec = codecs.lookup(named[1] if named else "utf-8").name
        b"x".decode(codec, "replace")
        return _decode_pieces(body, "utf-8" if codec in _NOT_FOR_PAGES else codec)
    except (LookupError, UnicodeError, ValueError):  # unknown, or not one for text
        return _decode_pieces(body, "utf-8")


def _decode_pieces(body: bytes, codec: str) -> str:
    decoder = codecs.getincrementaldecoder(codec)("replace")
    pieces = [decoder.decode(body[at : at + DECODED_AT_ONCE]) for at in range(0, len(body), DECODED_AT_ONCE)]
    return "".join([*pieces, decoder.decode(b"", final=True)])
