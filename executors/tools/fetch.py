"""A tool that fetches web pages on the host for code in the sandbox, within the limits of a list of hosts."""

from __future__ import annotations

import asyncio
import codecs
import re
import ssl
from collections.abc import Sequence
from email.message import Message
from typing import Any, Self
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import h11
from autogen_core import CancellationToken, Component
from autogen_core.tools import BaseTool
from pydantic import BaseModel, Field

from autogen_codeact.sandbox.egress.hostnames import is_address, normalise, shown, to_ascii, with_port
from autogen_codeact.sandbox.egress.outside import Outside, Resolver, Streams, resolve_by_system
from autogen_codeact.sandbox.egress.policy import Policy, Refused

MOST_REDIRECTS = 5
PIECE = 64 * 1024
_PORTS = {"http": 80, "https": 443}
_KEPT = "/%:=&?~#+!$,;'@()*[]"
_REDIRECTS = (301, 302, 303, 307, 308)
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


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
        allow_domains: Hosts that may be asked, such as "api.example.com" or "*.example.org:443".
        max_bytes: Bytes that a page may have. Default 1 MiB.
        timeout: Seconds that it may take, redirects included. Default 30.
        resolve: Finds the addresses of names; the config does not keep it.

    Raises:
        ValueError: An argument can't be right; the message says which.
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
        self._outside = Outside(Policy(allow_domains), resolve)
        self._config = FetchUrlToolConfig(allow_domains=list(allow_domains), max_bytes=max_bytes, timeout=timeout)
        hosts = ", ".join(allow_domains)
        super().__init__(
            FetchUrlArguments,
            str,
            "fetch_url",
            f"Fetch a page and return its text. Only these hosts can be asked: {hosts}.",
        )

    async def run(self, args: FetchUrlArguments, cancellation_token: CancellationToken) -> str:
        """Fetch a page.

        Args:
            args: Its URL.
            cancellation_token: Cancelling it hangs up.

        Returns:
            Its text.

        Raises:
            PermissionError: It, or where it redirects to, is not on the list.
            ConnectionError: It can't be had.
            TimeoutError: It took too long.
            ValueError: The URL is malformed, or the page is larger than it may be.
        """
        fetching = asyncio.ensure_future(self._fetch(args.url))
        cancellation_token.link_future(fetching)
        return await fetching

    async def _fetch(self, url: str) -> str:
        seconds = self._config.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(url)
        except Refused as refusal:
            kind = PermissionError if refusal.status == 403 else ConnectionError
            raise kind(str(refusal)) from None
        except TimeoutError:
            raise TimeoutError(f"{shown(url)} was not fetched within {seconds:g} s") from None
        except (OSError, h11.ProtocolError) as error:
            raise ConnectionError(f"{shown(url)} can't be fetched: {error}") from None

    async def _follow(self, url: str) -> str:
        for _ in range(MOST_REDIRECTS + 1):
            response, body = await self._get(url)
            place = next((value for name, value in response.headers if name == b"location"), None)
            if response.status_code in _REDIRECTS and place is not None:
                url = urljoin(url, place.decode("latin-1"))
            elif response.status_code >= 400:
                raise ConnectionError(f"{shown(url)} can't be fetched: the server says {response.status_code}")
            else:
                return body.decode(_charset(response), "replace")
        raise ConnectionError(f"{shown(url)} can't be fetched: more than {MOST_REDIRECTS} redirects")

    async def _get(self, url: str) -> tuple[h11.Response, bytes]:
        parts, host, port = _parsed(url)
        reader, writer = await self._outside.connect(host, port)
        try:
            if parts.scheme == "https":
                await writer.start_tls(ssl.create_default_context(), server_hostname=host)
            return await self._exchange((reader, writer), parts, _host_header(parts, host, port))
        finally:
            writer.transport.abort()

    async def _exchange(self, streams: Streams, parts: SplitResult, host: str) -> tuple[h11.Response, bytes]:
        reader, writer = streams
        parser = h11.Connection(h11.CLIENT)
        target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
        headers = [
            ("Host", host),
            ("User-Agent", "autogen-codeact"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        ]
        writer.write(parser.send(h11.Request(method="GET", target=target, headers=headers)) or b"")
        writer.write(parser.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        response, body = None, bytearray()
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                parser.receive_data(await reader.read(PIECE))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._config.max_bytes:
                    raise ValueError(f"the page has more than the {self._config.max_bytes:,} bytes that may be fetched")
        assert response is not None
        return response, bytes(body)

    def _to_config(self) -> FetchUrlToolConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: FetchUrlToolConfig) -> Self:
        return cls(config.allow_domains, max_bytes=config.max_bytes, timeout=config.timeout)


def _parsed(url: str) -> tuple[SplitResult, str, int]:
    """A URL, with its host normalised and its port."""
    if _CONTROL.search(url) or "\\" in url:
        raise ValueError(f"{shown(url)} is not a URL: it has a space, a backslash or a control character in it")
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{shown(url)} is not a URL: {error}") from None
    if parts.scheme not in _PORTS or not name:
        raise ValueError(f"{shown(url)} is not a URL of the web: it begins with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise ValueError(f"{shown(url)} has a user in front of the host: leave that out")
    try:
        host = normalise(f"[{name}]" if ":" in name else to_ascii(name))
    except ValueError as error:
        raise Refused(f"{error}, so it is not in allow_domains") from None
    return parts, host, port if port is not None else _PORTS[parts.scheme]


def _host_header(parts: SplitResult, host: str, port: int) -> str:
    if port != _PORTS[parts.scheme]:
        return with_port(host, port)
    return f"[{host}]" if is_address(host) and ":" in host else host


def _charset(response: h11.Response) -> str:
    message = Message()
    for name, value in response.headers:
        if name == b"content-type":
            message["Content-Type"] = value.decode("latin-1")
    charset = message.get_content_charset("utf-8")
    try:
        codecs.lookup(charset)
    except LookupError:
        return "utf-8"
    return charset
