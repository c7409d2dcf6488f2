"""The indexes that the host's pip is configured for: each lists the files of a project, and gives them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from codeact_sandbox.packages.fetching import Fetcher, FetchError, shown
from codeact_sandbox.packages.pages import HTML_TYPE, ProjectFile, parse_page

ACCEPT = f"{HTML_TYPE}, text/html;q=0.2"
PAGE_LIMIT = 64 * 1024 * 1024
PAGE_TIMEOUT_S = 60.0
PIECE = 256 * 1024


async def list_files(index: str, project: str, fetcher: Fetcher) -> list[ProjectFile]:
    """Return the files that an index in the simple layout has of a project, by its normalised name."""
    url = f"{index.rstrip('/')}/{project}/"
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_S), fetcher.open(url, accept=ACCEPT) as (response, final):
            content = await _read_response(response, url)
            content_type = response.headers.get("Content-Type", "text/html")
    except TimeoutError:
        raise FetchError(f"{shown(url)} can't be fetched: not complete after {PAGE_TIMEOUT_S:g} s") from None
    if content_type.partition(";")[0].strip().lower() not in ("text/html", HTML_TYPE):
        raise FetchError(f"{shown(url)} is not a page of a package index")
    try:
        return await asyncio.to_thread(parse_page, content, final)
    except ValueError as error:
        raise FetchError(f"{shown(url)} can't be read: {error}") from None


async def _read_response(response: httpx.Response, url: str) -> bytes:
    content = bytearray()
    # Not decompressed: a small page could become a very large one.
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > PAGE_LIMIT:
            raise FetchError(f"{shown(url)} has more than {PAGE_LIMIT:,} bytes, too many for a page")
    return bytes(content)


@dataclass(frozen=True)
class Download:
    """A file that is being read."""

    size: int | None  # its bytes, or None if that is not known
    pieces: AsyncIterator[bytes]


@contextlib.asynccontextmanager
async def download(url: str, base: str, fetcher: Fetcher, method: str = "GET") -> AsyncIterator[Download]:
    """Open a file that an index has listed."""
    async with fetcher.open(url, base, method=method) as (response, _):
        length = response.headers.get("Content-Length", "")
        yield Download(int(length) if length.isdigit() else None, response.aiter_raw(PIECE))
