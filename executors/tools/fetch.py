"""A tool that fetches web pages on the host for code in the sandbox, by the rules of `allow_domains`."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
import ssl
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Self

import httpx
from autogen_core import CancellationToken, Component
from autogen_core.tools import BaseTool
from pydantic import BaseModel, Field

from codeact_sandbox.egress.connector import MAX_THREADS, Connector, Resolver, resolve_by_system
from codeact_sandbox.egress.pinned import PinnedTransport
from codeact_sandbox.host.threads import Threads
from codeact_sandbox.types.allowed_domains import Policy, Refused
from codeact_sandbox.types.host_names import normalise, quoted

MAX_REDIRECTS = 5
MAX_REASON = 200
MAX_TYPE = 200
"""Characters of a media type that are read."""
DECODED_AT_ONCE = 16 * 1024
"""Bytes: no other thread runs meanwhile, and invalid ones take long."""
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "autogen-codeact", "Accept-Encoding": "identity", "Connection": "close"}
_CHARSET = re.compile(r";\s*charset=[\"']?([\w:.-]{1,40})", re.IGNORECASE)
# Other codecs of Python are not for pages, and some take time that grows with the square of the length.
_CODECS = ("ascii", "big5", "cp", "euc", "gb", "iso8859", "koi8", "shift_jis", "utf-")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f\\]")


class FetchUrlArguments(BaseModel):
    """What the tool takes."""

    url: str = Field(description="The page's URL, with http:// or https:// in front.")


class FetchUrlToolConfig(BaseModel):
    """Configuration of `FetchUrlTool`; every key is the constructor's argument of that name."""

    allow_domains: list[str]
    max_bytes: int = Field(default=1024 * 1024, gt=0)
    timeout: float = Field(default=30, gt=0)


class FetchUrlTool(BaseTool[FetchUrlArguments, Any], Component[FetchUrlToolConfig]):
    """Fetches the text of a web page, from named hosts only: the host's own network stays out of reach unless it is named.

    It follows the rules of `allow_domains` (docs/network.md): names and ports are on the list, each name is looked up once,
    every address must be public or in the network behind `in`, and every redirect is checked like the first URL.

    Args:
        allow_domains: Hosts that may be reached, such as "api.example.com" or "*.example.org:443".
        max_bytes: Bytes that a page may have. Default 1 MiB.
        timeout: Seconds that it may take, redirects included. Default 30.
        resolve: Finds the addresses of names; the config does not keep it.

    Raises:
        ValueError: An argument is invalid; the message says which.
    """

    component_config_schema = FetchUrlToolConfig
    component_provider_override = "autogen_codeact.executors.tools.fetch.FetchUrlTool"

    def __init__(
        self,
        allow_domains: Sequence[str],
        *,
        max_bytes: int = 1024 * 1024,
        timeout: float = 30,
        resolve: Resolver = resolve_by_system,
    ) -> None:
        self._connector = Connector(Policy(allow_domains), resolve)
        self._config = FetchUrlToolConfig(allow_domains=list(allow_domains), max_bytes=max_bytes, timeout=timeout)
        self._threads = Threads(MAX_THREADS, idle_s=0, name="codeact-fetch")
        hosts = ", ".join(allow_domains)
        super().__init__(
            FetchUrlArguments,
            str,
            "fetch_url",
            f"Fetch a page and return its text. Only these hosts can be reached: {hosts}.",
        )

    async def run(self, args: FetchUrlArguments, cancellation_token: CancellationToken) -> str:
        """Fetch a page."""
        fetching = asyncio.ensure_future(self._in_thread(args.url))
        cancellation_token.link_future(fetching)
        return await fetching

    async def _in_thread(self, url: str) -> str:
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
            async with asyncio.timeout(self._config.timeout):
                return await self._follow(httpx.URL(url))
        except Refused as refusal:
            kind = PermissionError if refusal.status == 403 else ConnectionError
            raise kind(str(refusal)) from None
        except TimeoutError:
            raise TimeoutError(f"{quoted(url)} was not fetched within {self._config.timeout:g} s") from None
        except httpx.InvalidURL as error:
            raise ValueError(f"{quoted(url)} is not a URL: {error}") from None
        except (OSError, httpx.TransportError) as error:
            # Cut off, because it may quote what the server has sent.
            reason = str(error)[:MAX_REASON] or type(error).__name__
            raise ConnectionError(f"{quoted(url)} can't be fetched: {reason}") from None

    async def _follow(self, url: httpx.URL) -> str:
        for _ in range(MAX_REDIRECTS + 1):
            addresses = await self._connector.addresses(*_host_and_port(url))
            verify = await asyncio.to_thread(ssl.create_default_context) if url.scheme == "https" else False
            transport = PinnedTransport(addresses, verify)
            async with (
                httpx.AsyncClient(transport=transport, timeout=None) as client,  # noqa: S113 - the caller has one for all
                client.stream("GET", url, headers=_HEADERS) as response,
            ):
                if not response.has_redirect_location:
                    return await self._read(response)
                url = _joined(url, response.headers["Location"])
        raise ConnectionError(f"more than {MAX_REDIRECTS} redirects")

    async def _read(self, response: httpx.Response) -> str:
        if response.status_code >= 400:
            raise ConnectionError(f"the server says {response.status_code}")
        body = bytearray()
        # Not decompressed: a small body could become a very large one.
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > self._config.max_bytes:
                raise ValueError(f"the page has more than the {self._config.max_bytes:,} bytes that may be fetched")
        return _decode(bytes(body), response.headers.get("Content-Type", ""))

    def _to_config(self) -> FetchUrlToolConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: FetchUrlToolConfig) -> Self:
        return cls(config.allow_domains, max_bytes=config.max_bytes, timeout=config.timeout)


def _host_and_port(url: httpx.URL) -> tuple[str, int]:
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


def _joined(url: httpx.URL, location: str) -> httpx.URL:
    try:
        return url.join(location)
    except httpx.InvalidURL as error:
        raise ConnectionError(error) from None


def _cancel(begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[str]]]) -> None:
    loop, task = begun.result()
    with contextlib.suppress(RuntimeError):  # it has been closed
        loop.call_soon_threadsafe(task.cancel)


def _decode(body: bytes, media_type: str) -> str:
    named = _CHARSET.search(media_type[:MAX_TYPE])
    codec = "utf-8"
    with contextlib.suppress(LookupError, ValueError):  # unknown
        codec = codecs.lookup(named[1]).name if named else codec
    decoder = codecs.getincrementaldecoder(codec if codec.startswith(_CODECS) else "utf-8")("replace")
    pieces = [decoder.decode(body[at : at + DECODED_AT_ONCE]) for at in range(0, len(body), DECODED_AT_ONCE)]
    return "".join([*pieces, decoder.decode(b"", final=True)])
