"""The file service: processes of the sandbox's user do what the host asks for. The host trusts no answer."""

from __future__ import annotations

import asyncio
import errno
import json
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.processes import Command, Input, pieces_of
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.runner.worker import file_service
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import printable

MAX_ANSWER_BYTES = 16 * 1024**2
MAX_ANSWER_PARTS = 160_000  # lists, and values of them
MAX_FAILURE_BYTES = 64 * 1024
TRANSFER_TIMEOUT_S = 600.0  # for whole folders; other operations may take as long as a block
TOOL_FILES_AT_ONCE = 8
Take = Callable[[bytes], Awaitable[object]]


class FileService:
    """Operations on the files of a sandbox, with the rights of its code, not with the supervisor's."""

    def __init__(self, client: RunnerClient, timeout_s: float = TRANSFER_TIMEOUT_S) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(TOOL_FILES_AT_ONCE)

    async def operate(
        self,
        op: str,
        path: str,
        *,
        take: Take,
        content: Input = b"",
        timeout: float | None = None,
        **arguments: Any,
    ) -> None:
        """Do something; `take` gets what it answers."""
        timeout = timeout or self._timeout_s
        if not path or "\0" in path:
            raise ValueError("a path must not be empty or contain a NUL character")
        request = json.dumps({"op": op, "path": path, **arguments}).encode()
        failure = bytearray()

        async def stdin() -> AsyncGenerator[bytes]:
            yield struct.pack("!I", len(request)) + request
            async with aclosing(pieces_of(content)) as pieces:
                async for piece in pieces:
                    yield piece

        async def on_output(stream: str, data: bytes) -> None:
            if stream == "stdout":
                await take(data)
            else:
                failure.extend(data[: MAX_FAILURE_BYTES - len(failure)])

        command = Command([file_service.COMMAND], stdin=True, timeout=timeout)
        done = await self._client.processes.open(command).run(stdin(), on_output, timeout)
        if done.timed_out:
            raise SandboxFileError(errno.ETIMEDOUT, f"it took longer than {done.duration_s:.0f} s", path)
        if done.exit_code != 0:
            raise _error_of(bytes(failure), path)

    async def ask(self, op: str, path: str, **arguments: Any) -> Any:
        """Do something that answers with JSON."""
        answer = bytearray()

        async def take(data: bytes) -> None:
            answer.extend(data)
            if len(answer) > MAX_ANSWER_BYTES:
                raise SandboxFileError(errno.E2BIG, "the sandbox sent too long an answer", path)

        await self.operate(op, path, take=take, **arguments)
        try:
            return await in_thread(parse_answer, answer)
        except (ValueError, RecursionError) as error:
            raise unreadable(path) from error

    async def read(self, path: str, take: Take, most: int) -> None:
        """Read a file for a host tool: of at most so many bytes, and nothing of the kernel's."""
        async with self._room:
            await self.operate("read", path, take=take, offset=0, size=None, most=most)

    async def write(self, path: str, content: Input) -> None:
        """Write a file of a host tool, and make the folders above it."""
        async with self._room:
            await self.ask("write", path, content=content)


def parse_answer(answer: bytearray) -> Any:
    """Parse an answer, unless it has so many parts that it would be much larger in memory."""
    unescaped = answer.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') <= MAX_ANSWER_PARTS:
        structure = b"".join(unescaped.split(b'"')[::2])
        if sum(map(structure.count, (b"[", b"{", b","))) <= MAX_ANSWER_PARTS:
            return json.loads(answer)
    raise ValueError("an answer with too many parts")


def unreadable(path: str) -> SandboxFileError:
    """Return the error for an answer that makes no sense."""
    return SandboxFileError(errno.EIO, "the sandbox sent an unreadable answer", path)


def _error_of(failure: bytes, path: str) -> SandboxFileError:
    try:
        said = json.loads(failure)
        return SandboxFileError(int(said["errno"]), printable(str(said["error"])[:1000]), path)
    except (ValueError, KeyError, TypeError, RecursionError):
        return SandboxFileError(errno.EIO, "the process that does it has ended", path)
