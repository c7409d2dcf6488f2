"""A tool that fetches web pages on the host for code in the sandbox, from an allow-list of hosts."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import httpx
from autogen_core import CancellationToken, Component
from autogen_core.tools import BaseTool
from pydantic import BaseModel, Field

from autogen_codeact.sandbox.egress import pinned
from autogen_codeact.sandbox.egress.connector import Connector, Resolver, resolve_by_system
from autogen_codeact.sandbox.egress.hosts import normalise, quoted
from autogen_codeact.sandbox.egress.policy import Policy, Refused

MAX_REDIRECTS = 5
MAX_REASON = 200
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "autogen-codeact", "Accept-Encoding": "identity", "Connection": "close"}
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
        hosts = ", ".join(allow_domains)
        super().__init__(
            FetchUrlArguments,
            str,
            "fetch_url",
            f"Fetch a page and return its text. Only these hosts can be reached: {hosts}.",
        )

    async def run(self, args: FetchUrlArguments, cancellation_token: CancellationToken) -> str:
        """Fetch a page.

        Args:
            args: Its URL.
            cancellation_token: Cancels the request.

        Returns:
            Its text.

        Raises:
            PermissionError: Its host, or that of a redirection, is not on the list.
            ConnectionError: It can't be fetched.
            TimeoutError: It took too long.
            ValueError: The URL is malformed, or the page is larger than it may be.
        """
        fetching = asyncio.ensure_future(self._fetch(args.url))
        cancellation_token.link_future(fetching)
        return await fetching

    async def _fetch(self, url: str) -> str:
        if _NOT_IN_URLS.search(url):
            raise ValueError(f"{quoted(url)} is not a URL: it has a space, a backslash or a control character in it")
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"{quoted(url)} is not a URL: {error}") from None
        seconds = self._config.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(parsed)
        except Refused as refusal:
            kind = PermissionError if refusal.status == 403 else ConnectionError
            raise kind(str(refusal)) from None
        except TimeoutError:
            raise TimeoutError(f"{quoted(url)} was not fetched within {seconds:g} s") from None
        except (OSError, httpx.TransportError, httpx.InvalidURL) as error:
            # Cut off, because it may quote what the server has sent.
            reason = str(error)[:MAX_REASON] or type(error).__name__
            raise ConnectionError(f"{quoted(url)} can't be fetched: {reason}") from None

    async def _follow(self, url: httpx.URL) -> str:
        for _ in range(MAX_REDIRECTS + 1):
            async with self._get(url) as response:
                if response.has_redirect_location:
                    url = url.join(response.headers["Location"])
                elif response.status_code >= 400:
                    raise ConnectionError(f"the server says {response.status_code}")
                else:
                    return _decode(await self._read(response), response.charset_encoding)
        raise ConnectionError(f"more than {MAX_REDIRECTS} redirects")

    @contextlib.asynccontextmanager
    async def _get(self, url: httpx.URL) -> AsyncIterator[httpx.Response]:
        """Send a request to an address that has been checked."""
        host, port = _host_and_port(url)
        addresses = await self._connector.addresses(host, port)
        verify = await asyncio.to_thread(ssl.create_default_context) if url.scheme == "https" else False
        async with pinned.request(url, host, addresses, verify=verify, headers=_HEADERS) as response:
            yield response

    async def _read(self, response: httpx.Response) -> bytes:
        body = bytearray()
        # Not decompressed: a small body could become a very large one.
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > self._config.max_bytes:
                raise ValueError(f"the page has more than the {self._config.max_bytes:,} bytes that may be fetched")
        return bytes(body)

    def _to_config(self) -> FetchUrlToolConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: FetchUrlToolConfig) -> Self:
        return cls(config.allow_domains, max_bytes=config.max_bytes, timeout=config.timeout)


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


def _decode(body: bytes, charset: str | None) -> str:
    try:
        codec = codecs.lookup(charset or "utf-8").name
        # Decoding takes time that grows with the square of the length.
        return body.decode("utf-8" if codec == "punycode" else codec, "replace")
    except (LookupError, UnicodeError, ValueError):  # unknown, or not one for text
        return body.decode("utf-8", "replace")
