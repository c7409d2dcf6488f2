"""Sources of packages: indexes over HTTP or in folders, and find-links; each lists the files of a project."""

from __future__ import annotations

import asyncio
import contextlib
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx

from codeact_sandbox.files.regular_files import open_regular
from codeact_sandbox.packages.fetching import Fetcher, FetchError, NotFoundError, shown
from codeact_sandbox.packages.pages import (
    HTML_TYPE,
    ProjectFile,
    belongs_to,
    file_name,
    parse_page,
)
from codeact_sandbox.packages.pip_config import PipConfig

ACCEPT = f"{HTML_TYPE}, text/html;q=0.2"
PAGE_LIMIT = 64 * 1024 * 1024
PAGE_TIMEOUT_S = 60.0
PIECE = 256 * 1024


@dataclass(frozen=True)
class Source:
    """Lists files: an index in the simple layout, or a page or folder with files of any projects."""

    where: str | Path  # its URL, or its path on the host
    is_index: bool  # whether it is an index
    fetcher: Fetcher

    async def files(self, project: str) -> list[ProjectFile]:
        """Return the files of a project, by its normalised name."""
        if self.is_index:
            return await self._list(f"{project}/")
        try:
            found = await self._list("")
        except NotFoundError as error:
            if isinstance(self.where, Path):
                return []  # as pip does
            raise FetchError(str(error)) from None
        return [file for file in found if belongs_to(file.filename, project)]

    async def _list(self, below: str) -> list[ProjectFile]:
        if isinstance(self.where, Path):
            return await asyncio.to_thread(_read_local, self.where / below, is_index=self.is_index)
        return await _fetch_page(f"{self.where.rstrip('/')}/{below}" if below else self.where, self.fetcher)


def make_sources(config: PipConfig, fetcher: Fetcher) -> list[Source]:
    """Return the sources that pip is configured for, in the order in which pip prefers them."""
    links = [Source(_local_path(entry) or entry, False, fetcher) for entry in config.find_links]
    return [*links, *(Source(_local_path(url) or url, True, fetcher) for url in config.indexes)]


def _local_path(entry: str) -> Path | None:
    """Return the path of a file URL or of a plain path; None for other URLs."""
    if entry.startswith("file:"):
        return Path(urllib.request.url2pathname(urlsplit(entry).path))
    return None if "://" in entry else Path(entry).expanduser()


async def _fetch_page(url: str, fetcher: Fetcher) -> list[ProjectFile]:
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_S), fetcher.open(url, accept=ACCEPT) as (response, final):
            content = await _read_response(response, url)
            content_type = response.headers.get("Content-Type", "text/html")
    except TimeoutError:
        raise FetchError(f"{shown(url)} can't be fetched: not complete after {PAGE_TIMEOUT_S:g} s") from None
    if content_type.partition(";")[0].strip().lower() not in ("text/html", HTML_TYPE):
        raise FetchError(f"{shown(url)} is not a page of a package index")
    try:
        found = await asyncio.to_thread(parse_page, content, final)
    except ValueError as error:
        raise FetchError(f"{shown(url)} can't be read: {error}") from None
    return [file for file in found if urlsplit(file.url).scheme in ("http", "https")]


async def _read_response(response: httpx.Response, url: str) -> bytes:
    content = bytearray()
    # Not decompressed: a small page could become a very large one.
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > PAGE_LIMIT:
            raise FetchError(f"{shown(url)} has more than {PAGE_LIMIT:,} bytes, too many for a page")
    return bytes(content)


@contextlib.contextmanager
def _local_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{path} does not exist") from None
    except OSError as error:
        raise FetchError(f"{path} can't be read: {error.strerror}") from None


def _read_local(path: Path, *, is_index: bool) -> list[ProjectFile]:
    page = path / "index.html" if is_index else path
    with _local_errors(path):
        if path.is_dir() and not page.is_file():
            return list(_in_folder(path))
        with open_regular(page.resolve()) as file:
            content = file.read(PAGE_LIMIT + 1)
    if len(content) > PAGE_LIMIT:
        raise FetchError(f"{page} has more than {PAGE_LIMIT:,} bytes, too many for a page")
    return parse_page(content, page.absolute().as_uri())


def _in_folder(folder: Path) -> Iterator[ProjectFile]:
    base = folder.absolute().as_uri() + "/"
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            url = Path(entry.path).absolute().as_uri()
            if file_name(url) is not None and entry.is_file():
                yield ProjectFile(entry.name, url, base)


@dataclass(frozen=True)
class Download:
    """A file that is being read."""

    size: int | None  # its bytes, or None if that is not known
    pieces: AsyncIterator[bytes]


@contextlib.asynccontextmanager
async def download(url: str, base: str, fetcher: Fetcher, method: str = "GET") -> AsyncIterator[Download]:
    """Open a file that a source has listed."""
    path = _local_path(url)
    if path is None:
        async with fetcher.open(url, base, method=method) as (response, _):
            length = response.headers.get("Content-Length", "")
            yield Download(int(length) if length.isdigit() else None, response.aiter_raw(PIECE))
        return
    with _local_errors(path):
        file = await asyncio.to_thread(lambda: open_regular(path.resolve()))
    with file:
        yield Download(os.fstat(file.fileno()).st_size, _pieces(file))


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE):
        yield piece
