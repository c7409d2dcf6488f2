"""A tool that fetches web pages on the host for code in the sandbox, from an allow-list of hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core.tools import BaseTool
from pydantic import BaseModel, Field

from autogen_codeact.sandbox.egress.connector import Resolver, resolve_by_system
from autogen_codeact.sandbox.egress.pages import PageFetcher


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
        self._fetcher = PageFetcher(allow_domains, max_bytes=max_bytes, timeout=timeout, resolve=resolve)
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
        fetching = asyncio.ensure_future(self._fetcher.fetch(args.url))
        cancellation_token.link_future(fetching)
        return await fetching

    def _to_config(self) -> FetchUrlToolConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: FetchUrlToolConfig) -> Self:
        return cls(config.allow_domains, max_bytes=config.max_bytes, timeout=config.timeout)
