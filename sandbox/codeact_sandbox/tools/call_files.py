"""Files that one call of a host tool exchanges with the sandbox: within a limit, and removed from the host with the call."""

from __future__ import annotations

import asyncio
import posixpath
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.types.filenames import safe_name
from codeact_sandbox.types.paths import WORKSPACE

CHUNK = 256 * 1024


class CodeFiles(Protocol):
    """Reads and writes files of a sandbox with the rights of its code; `FileService` does."""

    async def read(self, path: str, take: Callable[[bytes], Awaitable[object]], most: int) -> None:
        """Read a file of at most so many bytes, and pass its content on in pieces."""

    async def write(self, path: str, content: bytes | AsyncGenerator[bytes]) -> None:
        """Write a file."""


@dataclass
class FileBudget:
    """How many bytes the running calls of a sandbox may hold as files, and as what the tools get of them."""

    limit: int
    used: int = 0  # bytes that are in use
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, count: int) -> None:
        """Take some of it; also from a thread."""
        with self._lock:
            if self.used + count <= self.limit:
                self.used += count
                return
        raise ValueError(
            f"it is too large: the running calls of a sandbox may hold {self.limit:,} bytes of files and values"
        )

    def give_back(self, count: int) -> None:
        with self._lock:
            self.used -= count


class CallFiles:
    def __init__(self, sandbox: CodeFiles, budget: FileBudget, work_dir: Path | None) -> None:
        self._sandbox = sandbox
        self._budget = budget
        self._work_dir = work_dir
        self._taken = 0
        self._closed = False
        self._folder: TemporaryFolder | None = None
        self._copies: dict[str, tuple[Path, dict[str, Any]]] = {}  # by path in the sandbox, with hash and size

    async def close(self) -> None:
        """Remove the copies on the host."""
        self._closed = True
        self._give_back()
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.shield(asyncio.ensure_future(folder.remove()))

    async def read(self, path: str) -> bytes:
        """Return the content of a file of the sandbox."""
        copy = await self.copy_in(path)
        return await in_thread(copy.read_bytes)

    async def fetch(self, path: str) -> dict[str, Any]:
        """Copy a file of the sandbox as `copy_in` does, and return the hash and the size of its content."""
        await self.copy_in(path)
        return self._copies[path][1]

    async def copy_in(self, path: str) -> Path:
        """Copy a file of the sandbox, once, into a temporary folder of the host; the copy is removed with the call."""
        if path in self._copies:
            return self._copies[path][0]
        name = posixpath.basename(_checked(path))
        safe_name(name)
        if self._folder is None:
            self._folder = await in_thread(TemporaryFolder)
        # A folder of its own, because two arguments may have the same name.
        target = self._folder.path / str(len(self._copies)) / name
        await in_thread(target.parent.mkdir)
        await in_thread(target.touch)
        content = sha256()

        async def take(piece: bytes) -> None:
            self.take(len(piece))
            await in_thread(_append, target, piece, content)

        await self._sandbox.read(path, take, self._budget.limit - self._budget.used)
        self._copies[path] = target, {"sha256": content.hexdigest(), "bytes": target.stat().st_size}
        return target

    async def write(self, path: str, data: bytes) -> None:
        self.take(len(data))
        await self._sandbox.write(path, data)

    async def copy_out(self, source: Path) -> str:
        """Copy a file of the host into the workspace, and return its path there.

        A file in `work_dir` gets the path that it has there, any other its own name.
        """
        name, size = await in_thread(self._describe, source)
        self.take(size)
        await self._sandbox.write(name, in_threads(_chunks(source, size)))
        return f"{WORKSPACE}/{name}"

    def _describe(self, source: Path) -> tuple[str, int]:
        path = source.resolve(strict=True)
        if not path.is_file():
            raise TypeError(f"the tool returned the path {source.name!r}, which is not a file")
        work_dir = self._work_dir.resolve() if self._work_dir is not None else None
        inside = work_dir is not None and path.is_relative_to(work_dir)
        name = path.relative_to(work_dir).as_posix() if inside and work_dir is not None else source.name
        return safe_name(name), path.stat().st_size

    def take(self, count: int) -> None:
        """Take some of the sandbox's budget, until the call ends."""
        self._budget.take(count)
        self._taken += count
        if self._closed:  # a thread goes on with a value although its call was cancelled
            self._give_back()

    def _give_back(self) -> None:
        taken, self._taken = self._taken, 0
        self._budget.give_back(taken)


def _checked(path: str) -> str:
    """Check the path of a file of the sandbox, which untrusted code has sent."""
    if not path.startswith("/") or path.startswith("//") or "\0" in path or posixpath.normpath(path) != path:
        raise ValueError("the path of a file must be absolute, without . and ..")
    return path


def _append(target: Path, piece: bytes, content: Any) -> None:
    with target.open("ab") as file:
        file.write(piece)
    content.update(piece)


def _chunks(source: Path, size: int) -> Generator[bytes]:
    with source.open("rb") as file:
        while size > 0 and (piece := file.read(min(CHUNK, size))):
            size -= len(piece)
            yield piece
