"""Bringing an image to an engine from another engine that has it. Every function here blocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from autogen_codeact.sandbox.backends.docker.engine import connect, engine_errors
from autogen_codeact.sandbox.backends.docker.hosts import DockerHost, EngineAddress
from autogen_codeact.sandbox.backends.docker.image_requests import Progress, Reporter, find_image
from autogen_codeact.sandbox.backends.docker.placement import Address, placement
from autogen_codeact.sandbox.errors import SandboxError, SandboxStartError, SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient

CHUNK = 1024 * 1024
STALL_S = 600
"""Seconds without an answer after which a copy is aborted: an engine is silent while it unpacks a large layer."""
LOCK_WAIT_S = 1.0

_locks: dict[tuple[Address, str], threading.Lock] = {}
_locks_guard = threading.Lock()


class ImageCopies:
    """Copies missing images to an engine, each once however many sandboxes start there.

    Args:
        client: Connection to the engine.
        engine: The engine.
        hosts: The engines of its set, itself included; with one or none nothing is copied.
        progress: Called with lines about a copy.
        cancelled: Completed to stop.
    """

    def __init__(
        self,
        client: APIClient,
        engine: EngineAddress,
        hosts: Sequence[DockerHost],
        progress: Progress,
        cancelled: Future[None],
    ) -> None:
        self._client = client
        self._engine = engine
        self._others = [host for host in hosts if host != engine]
        self._progress = progress
        self._cancelled = cancelled

    def fetch(self, image: str, *, again: bool = False) -> bool:
        """Bring an image from the first of the other engines that has it.

        Args:
            image: Its reference or id.
            again: Whether one with the same name is replaced. Default: it is kept.

        Returns:
            Whether the engine has it now.

        Raises:
            SandboxError: The engine did not take it, or the start was cancelled.
        """
        if not self._others or not isinstance(self._engine, DockerHost):
            return False
        with _locks_guard:
            lock = _locks.setdefault((self._engine.address, image), threading.Lock())
        while not lock.acquire(timeout=LOCK_WAIT_S):
            self._check()
        try:
            found = not again and find_image(self._client, image) is not None
            return found or self._copy(image, self._engine)
        finally:
            lock.release()

    def _copy(self, image: str, target: DockerHost) -> bool:
        reporter = Reporter(self._progress)
        for source in placement().usable(self._others):
            try:
                with closing(connect(source)) as client:
                    found = find_image(client, image)
                    if found is None:
                        continue
                    reporter.say(f"copying {image} from {source.label} to {target.label} …")
                    size = int(found.get("Size") or 0)
                    self._transfer(client, image, target, _Report(reporter, image, size))
            except _SourceError as error:
                reporter.say(f"{image} could not be copied from {source.label}: {error}")
                continue
            except SandboxUnavailable as error:  # in the connection to the source, or the search there
                reporter.say(f"{source.label} can't be asked for {image}: {error}")
                continue
            if find_image(self._client, image) is not None:
                reporter.say(f"copied {image} to {target.label}")
                return True
        return False

    def _transfer(self, source: APIClient, image: str, target: DockerHost, report: _Report) -> None:
        """Stream an image from one engine to another, a piece at a time.

        Raises:
            _SourceError: The source broke off.
            SandboxStartError: The target did not take it.
        """
        # Not the SDK's own request, which leaves its connection open.
        url = f"{source.base_url}/v{source.api_version}/images/{quote(image, safe='/:')}/get"
        with closing(source.get(url, stream=True)) as saved, closing(connect(target)) as client:
            pieces = _Pieces(saved, self._check, report)
            client.timeout = STALL_S
            sdk_target: Any = client
            doing = f"copying {image} to {target.label}"
            try:
                with engine_errors(doing):
                    for event in sdk_target.load_image(iter(pieces)):
                        if "error" in event:
                            raise SandboxStartError(_advice(target, image, str(event["error"])))
            except SandboxError as error:
                if pieces.error is not None:
                    raise _SourceError(str(pieces.error)) from error
                if isinstance(error, SandboxUnavailable):
                    raise SandboxStartError(str(error)) from error
                raise

    def _check(self) -> None:
        if self._cancelled.done():
            raise SandboxStartError("the start of the sandbox was cancelled while an image was copied")


class _SourceError(Exception):
    """The engine that has the image did not deliver it."""


class _Report:
    def __init__(self, reporter: Reporter, image: str, size: int) -> None:
        self._reporter = reporter
        self._image = image
        self._total = f" of {size / 1e6:.0f}" if size else ""
        self._bytes = 0
        self._next = time.monotonic() + 1.0

    def add(self, count: int) -> None:
        self._bytes += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            self._reporter.say(f"{self._image}: {self._bytes / 1e6:.0f}{self._total} MB")


class _Pieces:
    """The image as the source sends it; notes what goes wrong there, which the target's side would report as its own."""

    def __init__(self, saved: Any, check: Callable[[], None], report: _Report) -> None:
        self._saved = saved
        self._check = check
        self._report = report
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        chunks = self._chunks()
        while True:
            self._check()
            try:
                chunk = next(chunks, b"")
            except Exception as error:
                self.error = error
                raise
            if not chunk:
                return
            self._report.add(len(chunk))
            yield chunk

    def _chunks(self) -> Iterator[bytes]:
        self._saved.raise_for_status()
        yield from self._saved.iter_content(CHUNK)


def _advice(target: DockerHost, image: str, reason: str) -> str:
    if "no space left on device" in reason:
        return (
            f"the disk of the Docker engine {target.label} is full, so {image} could not be copied to it: free some space, for "
            "example with `docker system prune`"
        )
    return f"the Docker engine {target.label} did not take {image}: {reason[-500:]}"
