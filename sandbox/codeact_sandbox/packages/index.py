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

from codeact_sandbox.egress.channel import Channel
from codeact_sandbox.egress.connection_log import ConnectionLog
from codeact_sandbox.egress.connector import Resolver, resolve_by_system
from codeact_sandbox.packages.fetching import Fetcher, FetchError, NotFoundError
from codeact_sandbox.packages.pages import ProjectFile, canonical_name, write_html
from codeact_sandbox.packages.pip_config import PipConfig
from codeact_sandbox.packages.sources import Download, download, list_files
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.host_names import quoted

TOTAL_LIMIT = 4 * 1024**3  # bytes of files that one sandbox may fetch
METADATA_LIMIT = 16 * 1024 * 1024
FILE_TIMEOUT_S = 1800.0
CACHE_S = 120.0
CACHED_PROJECTS = 64
CACHED_FILES = 30_000  # files that the cached pages list together; each takes about 1 KB of memory
PAGES_AT_ONCE = 8
METADATA = ".metadata"
_PROJECT = re.compile(r"/simple/([^/]*)/?")
_FILE = re.compile(r"/files/([^/]*)/([^/]*)")


class PackageIndex:
    """Answers the requests of one sandbox."""

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
        """Close its connections."""
        await self._fetcher.close()

    async def serve(self, channel: Channel, request: h11.Request, parser: h11.Connection, log: ConnectionLog) -> None:
        """Answer one request."""
        answer = Answer(channel, parser, head_only=request.method == b"HEAD")
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
        if request.method not in (b"GET", b"HEAD"):
            raise Refused("the package index is read-only: it takes GET and HEAD", 405)
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
        """Return the files of a project by name: of several with one name, the first index's."""
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
        is_metadata = filename.endswith(METADATA)
        file = (await self._files(project, log)).get(filename.removesuffix(METADATA))
        if file is None or (is_metadata and file.metadata is None):
            raise NotFoundError(filename)
        url = file.url + METADATA if is_metadata else file.url
        limit = METADATA_LIMIT if is_metadata else self._file_limit
        method = "HEAD" if answer.head_only else "GET"
        try:
            async with asyncio.timeout(FILE_TIMEOUT_S), download(url, file.base, self._fetcher, method) as opened:
                await self._pass_on(answer, opened, filename, limit)
        except TimeoutError:
            raise FetchError(f"{filename} was not complete after {FILE_TIMEOUT_S:g} s") from None

    async def _pass_on(self, answer: Answer, opened: Download, filename: str, limit: int) -> None:
        if (opened.size or 0) > min(limit, self._left):
            raise FetchError(self._too_large(filename, opened.size))
        await answer.begin(200, "application/octet-stream", opened.size)
        sent = 0
        if not answer.head_only:
            async for piece in opened.pieces:
                sent += len(piece)
                self._left -= len(piece)
                if sent > limit or self._left < 0:
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


class Answer:
    """Writes one response."""

    def __init__(self, channel: Channel, parser: h11.Connection, *, head_only: bool) -> None:
        self.head_only = head_only
        self._channel = channel
        self._parser = parser
        self._begun = False

    async def send(self, status: int, content: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        """Send a whole response; nothing if another one has begun, which is then incomplete."""
        if self._begun:
            return
        await self.begin(status, content_type, len(content))
        if not self.head_only:
            await self.write(content)
        await self.end()

    async def begin(self, status: int, content_type: str, size: int | None) -> None:
        """Send the head of a response."""
        self._begun = True
        headers = [("Content-Type", content_type), ("Connection", "close")]
        if size is not None:
            headers.append(("Content-Length", str(size)))
        await self._send(h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()))

    async def write(self, content: bytes) -> None:
        """Send a part of the body."""
        await self._send(h11.Data(data=content))

    async def end(self) -> None:
        """Send the end of the body."""
        await self._send(h11.EndOfMessage())
        self._channel.end()

    async def _send(self, event: h11.Event) -> None:
        await self._channel.write(self._parser.send(event) or b"")
