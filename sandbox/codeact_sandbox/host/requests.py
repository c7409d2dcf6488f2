"""Requests to a started runner and their answers: files, and the memory of the session."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import Any

from codeact_sandbox.host.connection import Connection, Reply
from codeact_sandbox.host.messages import checked_entries, number_of
from codeact_sandbox.host.protocol import Frame
from codeact_sandbox.host.waiting import iterating, wait_for
from codeact_sandbox.types.errors import (
    SandboxDied,
    SandboxError,
    SandboxFileError,
    SandboxStartError,
    SandboxTimeout,
)

CHUNK = 256 * 1024
ANSWER_TIMEOUT_S = 20.0


class Requests:
    """Sends requests to a runner.

    Args:
        name: Name of the sandbox, for messages.
        stop: Stops the sandbox, which has not answered in time.
    """

    def __init__(self, name: str, stop: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self.connection: Connection | None = None
        self.idents = itertools.count(1)
        """Numbers for requests."""
        self.lock = threading.Lock()
        """For the use of the connection, which can be taken away between two uses of the sandbox."""
        self.given_back = False
        """Whether the connection was taken away."""
        self._stop = stop

    def usable_connection(self) -> Connection:
        """Return the connection; the caller holds the lock."""
        if self.connection is not None:
            return self.connection
        if self.given_back:
            raise SandboxDied(f"this use of the sandbox {self.name} has ended: start again")
        raise SandboxStartError("the sandbox has not been started")

    def send(self, kind: bytes, message: dict[str, Any], data: bytes = b"", ident: int | None = None) -> Future[Reply]:
        """Send a request; the future fails if the sandbox has ended."""
        with self.lock:
            connection = self.usable_connection()
            return connection.request(kind, ident if ident is not None else next(self.idents), message, data)

    async def _ask(self, kind: bytes, message: dict[str, Any], data: bytes = b"", ident: int | None = None) -> Reply:
        """Send a request that takes little work; stop the sandbox if the answer does not come in time."""
        try:
            late = f"the sandbox {self.name} did not answer within {ANSWER_TIMEOUT_S:g} s"
            return await wait_for(self.send(kind, message, data, ident), ANSWER_TIMEOUT_S, late)
        except SandboxTimeout:
            await self._stop()
            raise

    async def command(self, kind: bytes, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request about the session (checkpoint, rollback)."""
        reply = await self._ask(kind, message)
        if "error" in reply.message:
            raise ValueError(str(reply.message["error"]))
        return reply.message

    async def write_file(self, name: str, mode: int, chunks: Iterable[bytes] | AsyncIterable[bytes]) -> None:
        """Send a file into the sandbox."""
        ident = next(self.idents)
        begun = False
        waiting = b""
        async with iterating(chunks) as pieces:
            try:
                async for chunk in pieces:
                    if waiting:
                        begun = True
                        await self.file_request({"op": "write", "name": name}, waiting, ident)
                    waiting = chunk
                last = {"op": "write", "name": name, "mode": mode, "final": True}
                await self.file_request(last, waiting, ident)
            except BaseException:
                if begun:
                    # Nobody waits for the answer. It removes the part that was sent.
                    self.send(Frame.FILE_REQUEST, {"op": "write", "abandon": True}, ident=ident)
                raise

    async def read_file(self, name: str) -> AsyncGenerator[tuple[bytes, int], None]:
        """Read a file of the sandbox."""
        offset = 0
        while True:
            reply = await self.file_request({"op": "read", "name": name, "offset": offset, "size": CHUNK})
            yield reply.data, number_of(reply.message, "size")
            offset += len(reply.data)
            if len(reply.data) < CHUNK:
                return

    async def answers(self, timeout_s: float) -> bool:
        """Return whether it answers a request that takes no work, within some seconds."""
        try:
            await wait_for(self.send(Frame.FILE_REQUEST, {"op": "list"}), timeout_s, "it did not answer")
        except SandboxError:
            return False
        return True

    async def list_files(self) -> list[dict[str, Any]]:
        """List the regular files of the workspace, each with `name`, `size` and `mode`."""
        return checked_entries((await self.file_request({"op": "list"})).message.get("files"))

    async def file_request(self, message: dict[str, Any], data: bytes = b"", ident: int | None = None) -> Reply:
        """Send a request about files."""
        reply = await self._ask(Frame.FILE_REQUEST, message, data, ident)
        if "error" in reply.message:
            number = number_of(reply.message, "errno")
            raise SandboxFileError(number, str(reply.message["error"]), message.get("name"))
        return reply
