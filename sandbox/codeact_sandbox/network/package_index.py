"""The package index that a sandbox sees: read-only, on its own loopback, made of what the host's pip is configured for.

The code names a project and a file name, never a URL: only what the pages of the configured sources list is fetched.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from http import HTTPStatus
from urllib.parse import unquote

import h11
import httpx

from codeact_sandbox.network.channels import Channel
from codeact_sandbox.network.connection_log import ConnectionLog
from codeact_sandbox.network.connector import Resolver, resolve_by_system
from codeact_sandbox.network.index_fetching import Fetcher, FetchError, NotFoundError, shown
from codeact_sandbox.network.index_pages import HTML_TYPE, ProjectFile, canonical_name, parse_page, write_html
from codeact_sandbox.network.pip_config import PipConfig
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.host_names import quoted

TOTAL_LIMIT = 4 * 1024**3  # bytes of files that one sandbox may fetch
FILE_TIMEOUT_S = 1800.0
CACHE_S = 120.0
CACHED_PROJECTS = 64
CACHED_FILES = 30_000  # files that the cached pages list together; each takes about 1 KB of memory
PAGES_AT_ONCE = 8
ACCEPT = f"{HTML_TYPE}, text/html;q=0.2"
PAGE_LIMIT = 64 * 1024 * 1024
PAGE_TIMEOUT_S = 60.0
PIECE = 256 * 1024
_PROJECT = re.compile(r"/simple/([^/]*)/?")
_FILE = re.compile(r"/files/([^/]*)/([^/]*)")


class PackageIndex:
    def __init__(
        self,
        file_limit: int,
        config: PipConfig | None = None,
        resolve: Resolver = resolve_by_system,
        *,
        total_limit: int = TOTAL_LIMIT,
    ) -> None:
        config = PipConfig.of_host() if config is None else config
        self._file_limit = file_limit
        self._left = self._total_limit = total_limit
        self._fetcher = Fetcher(config, resolve)
        self._indexes = config.indexes
        self._cache: OrderedDict[str, tuple[float, dict[str, ProjectFile]]] = OrderedDict()
        self._reading = asyncio.Semaphore(PAGES_AT_ONCE)

    async def close(self) -> None:
        await self._fetcher.close()

    async def serve(self, channel: Channel, request: h11.Request, parser: h11.Connection, log: ConnectionLog) -> None:
        answer = Answer(channel, parser)
        try:
            await self._answer(answer, request, log)
        except Refused as refusal:
            await answer.send(refusal.status, f"{refusal}\n".encode())
        except NotFoundError:
            await answer.send(404, b"the package index has no such project or file\n")
        except FetchError as error:
            log.remark(f"The package index could not serve a request: {error}.")
            await answer.send(502, f"{error}\n".encode("utf-8", "replace"))

    async def _answer(self, answer: Answer, request: h11.Request, log: ConnectionLog) -> None:
        if request.method != b"GET":
            raise Refused("the package index is read-only: it takes GET", 405)
        target = request.target.decode("latin-1").partition("?")[0]
        if match := _PROJECT.fullmatch(target):
            project = _project(match[1])
            files = (await self._files(project, log)).values()
            page = await asyncio.to_thread(write_html, project, files)
            await answer.send(200, page, "text/html; charset=utf-8")
        elif match := _FILE.fullmatch(target):
            await self._send_file(answer, _project(match[1]), unquote(match[2]), log)
        else:
            raise Refused(f"the package index has no page {quoted(target)}: it serves /simple/PROJECT/", 404)

    async def _files(self, project: str, log: ConnectionLog) -> dict[str, ProjectFile]:
        made, files = self._cache.get(project, (0.0, {}))
        if files and time.monotonic() < made + CACHE_S:
            return files
        async with self._reading:
            listing = (list_files(each, project, self._fetcher) for each in self._indexes)
            found = await asyncio.gather(*listing, return_exceptions=True)
        files, problems = {}, []
        for each in found:
            if isinstance(each, NotFoundError):
                continue
            if isinstance(each, FetchError):
                problems.append(each)
            elif isinstance(each, BaseException):
                raise each
            else:
                files = {**{file.filename: file for file in reversed(each)}, **files}
        if not files:
            raise problems[0] if problems else NotFoundError(project)
        for problem in problems:
            log.remark(f"Packages were taken from other indexes than this one: {problem}.")
        self._cache[project] = time.monotonic(), files
        while (
            len(self._cache) > CACHED_PROJECTS
            or sum(map(len, (files for _, files in self._cache.values()))) > CACHED_FILES
        ):
            self._cache.popitem(last=False)
        return files

    async def _send_file(self, answer: Answer, project: str, filename: str, log: ConnectionLog) -> None:
        file = (await self._files(project, log)).get(filename)
        if file is None:
            raise NotFoundError(filename)
        try:
            async with asyncio.timeout(FILE_TIMEOUT_S), self._fetcher.open(file.url, file.base) as (response, _):
                await self._pass_on(answer, response, filename)
        except TimeoutError:
            raise FetchError(f"{filename} was not complete after {FILE_TIMEOUT_S:g} s") from None

    async def _pass_on(self, answer: Answer, response: httpx.Response, filename: str) -> None:
        length = response.headers.get("Content-Length", "")
        size = int(length) if length.isdigit() else None
        if (size or 0) > min(self._file_limit, self._left):
            raise FetchError(self._too_large(filename, size))
        await answer.begin(200, "application/octet-stream", size)
        sent = 0
        async for piece in response.aiter_raw(PIECE):
            sent += len(piece)
            self._left -= len(piece)
            if sent > self._file_limit or self._left < 0:
                raise FetchError(self._too_large(filename, None))
            await answer.write(piece)
        await answer.end()

    def _too_large(self, filename: str, size: int | None) -> str:
        if self._left < self._file_limit:
            return f"{filename} is not fetched: this sandbox may fetch {self._total_limit:,} bytes of packages in all"
        length = "more" if size is None else f"{size:,} bytes"
        return (
            f"{filename} has {length}, and the sandbox has room for {self._file_limit:,} bytes: give it larger limits, "
            "Limits(memory=..., tmp=...), or an image with the package"
        )


def _project(name: str) -> str:
    project = canonical_name(name)
    if project is None:
        raise Refused(f"{quoted(name)} is not the name of a project", 404)
    return project


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


class Answer:
    def __init__(self, channel: Channel, parser: h11.Connection) -> None:
        self._channel = channel
        self._parser = parser
        self._begun = False

    async def send(self, status: int, content: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        """Send a whole response; nothing if another one has begun, which is then incomplete."""
        if self._begun:
            return
        await self.begin(status, content_type, len(content))
        await self.write(content)
        await self.end()

    async def begin(self, status: int, content_type: str, size: int | None) -> None:
        self._begun = True
        headers = [("Content-Type", content_type), ("Connection", "close")]
        if size is not None:
            headers.append(("Content-Length", str(size)))
        await self._send(h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()))

    async def write(self, content: bytes) -> None:
        await self._send(h11.Data(data=content))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())
        self._channel.end()

    async def _send(self, event: h11.Event) -> None:
        await self._channel.write(self._parser.send(event) or b"")
