"""Requests to a started runner and their answers: blocks, files, and the memory of the session."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from codeact_sandbox.host import protocol
from codeact_sandbox.host.blocks import to_result
from codeact_sandbox.host.connection import Connection, OutputCallback, Reply
from codeact_sandbox.host.protocol import checked_entries, number_of
from codeact_sandbox.host.waiting import asynchronous, wait_for
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import (
    SandboxError,
    SandboxFileError,
    SandboxStartError,
    SandboxTimeout,
)

if TYPE_CHECKING:
    from codeact_sandbox.tools.broker import BlockCalls

CHUNK = 256 * 1024
ANSWER_TIMEOUT_S = 20.0
OUTPUT_SLACK = 64 * 1024

logger = logging.getLogger("codeact_sandbox")


class Requests:
    def __init__(self, name: str, stop: Callable[[], Awaitable[None]], output_limit: int, grace_s: float) -> None:
        self.name = name
        self.connection: Connection | None = None
        self.idents = itertools.count(1)  # numbers for requests
        self.stop = stop
        self.output_limit = output_limit
        self.output_room = 2 * output_limit + OUTPUT_SLACK
        self.grace_s = grace_s

    def usable_connection(self) -> Connection:
        if self.connection is not None:
            return self.connection
        raise SandboxStartError("the sandbox has not been started")

    def send(self, kind: bytes, message: dict[str, Any], data: bytes = b"", ident: int | None = None) -> Future[Reply]:
        """Send a request; the future fails if the sandbox has ended."""
        connection = self.usable_connection()
        return connection.request(kind, ident if ident is not None else next(self.idents), message, data)

    async def ask(
        self, message: dict[str, Any], data: bytes = b"", ident: int | None = None, *, kind: bytes = wire.FILE_REQUEST
    ) -> Reply:
        """Send a request that takes little work, about files or the session; stop the sandbox if the answer is late.

        Raises:
            SandboxFileError: A request about files failed.
            ValueError: A request about the session (checkpoint, rollback) failed.
        """
        try:
            late = f"the sandbox {self.name} did not answer within {ANSWER_TIMEOUT_S:g} s"
            reply = await wait_for(self.send(kind, message, data, ident), ANSWER_TIMEOUT_S, late)
        except SandboxTimeout:
            await self.stop()
            raise
        if "error" not in reply.message:
            return reply
        if kind is not wire.FILE_REQUEST:
            raise ValueError(str(reply.message["error"]))
        number = number_of(reply.message, "errno")
        raise SandboxFileError(number, str(reply.message["error"]), message.get("name"))

    async def write_file(self, name: str, mode: int, chunks: Iterable[bytes] | AsyncGenerator[bytes]) -> None:
        """Send a file into the sandbox that the host has; no list of changed files has it."""
        ident = next(self.idents)
        begun = False
        waiting = b""
        async with aclosing(chunks if isinstance(chunks, AsyncGenerator) else asynchronous(chunks)) as pieces:
            try:
                async for chunk in pieces:
                    if waiting:
                        begun = True
                        await self.ask({"op": "write", "name": name}, waiting, ident)
                    waiting = chunk
                last = {"op": "write", "name": name, "mode": mode, "final": True}
                await self.ask(last, waiting, ident)
            except BaseException:
                if begun:
                    # Nobody waits for the answer. It removes the part that was sent.
                    self.send(wire.FILE_REQUEST, {"op": "write", "abandon": True}, ident=ident)
                raise

    async def kill(self, connection: Connection, ident: int, reply: Future[Reply]) -> Reply | None:
        """Kill a block or a command and wait for its end; return None if the sandbox has ended, too, or is stopped now."""
        connection.send(protocol.pack(wire.KILL_BLOCK, ident, {}))
        try:
            return await wait_for(reply, self.grace_s, f"the sandbox {self.name} did not end what was cancelled")
        except SandboxTimeout as error:
            logger.warning("%s; it is stopped", error)
            await self.stop()
        except SandboxError:
            pass  # the sandbox has ended
        return None

    async def read_file(self, name: str) -> AsyncGenerator[tuple[bytes, int], None]:
        offset = 0
        while True:
            reply = await self.ask({"op": "read", "name": name, "offset": offset, "size": CHUNK})
            yield reply.data, number_of(reply.message, "size")
            offset += len(reply.data)
            if len(reply.data) < CHUNK:
                return

    async def answers(self, timeout_s: float) -> bool:
        """Return whether it answers a request that takes no work, within some seconds."""
        try:
            await wait_for(self.send(wire.FILE_REQUEST, {"op": "list"}), timeout_s, "it did not answer")
        except SandboxError:
            return False
        return True

    async def list_files(self) -> list[dict[str, Any]]:
        return checked_entries((await self.ask({"op": "list"})).message.get("files"))

    async def list_folder(self, path: str) -> object:
        """List what is below a folder of the workspace: files, and empty folders."""
        message = (await self.ask({"op": "list", "folder": path, "folders": True})).message
        if message.get("cut"):
            reason = "there are too many files in it, or folders in folders: choose one below it"
            raise SandboxFileError(errno.E2BIG, reason, path)
        return message.get("files")


class RunningBlocks:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._time_limits: dict[int, float] = {}
        self._calls: dict[int, BlockCalls] = {}

    @property
    def running(self) -> bool:
        """Whether blocks run."""
        return bool(self._time_limits)

    def take_calls(self, connection: Connection) -> None:
        """Pass the frames of calls to host tools to the blocks that make them."""
        connection.handlers[wire.TOOL_CALL] = partial(self._on_call_frame, wire.TOOL_CALL)
        connection.handlers[wire.CANCEL_CALL] = partial(self._on_call_frame, wire.CANCEL_CALL)

    def _on_call_frame(self, kind: bytes, ident: int, payload: bytes) -> None:
        if (calls := self._calls.get(ident)) is not None:
            calls.on_frame(kind, payload)

    async def run(
        self,
        request: dict[str, Any],
        code: bytes,
        timeout_s: float,
        on_output: OutputCallback | None = None,
        calls: BlockCalls | None = None,
    ) -> Reply:
        ident = next(self._requests.idents)
        message = {**request, "timeout": float(timeout_s), "tools": calls is not None}
        connection = self._requests.usable_connection()
        if calls is not None:
            send = connection.send
            calls.send = lambda answer: send(protocol.pack(wire.TOOL_ANSWER, ident, None, answer))
            self._calls[ident] = calls
        reply = connection.request(
            wire.RUN_BLOCK, ident, message, code, output_room=self._requests.output_room, on_output=on_output
        )
        # Blocks that were sent before may have to end first.
        self._time_limits[ident] = timeout_s + self._requests.grace_s
        try:
            limit = sum(list(self._time_limits.values()))
            return await wait_for(reply, limit, f"the sandbox {self._requests.name} did not answer within {limit:g} s")
        except asyncio.CancelledError as cancelled:
            await self._kill_block(connection, ident, reply, cancelled)
            raise
        except SandboxError as error:
            if isinstance(error, SandboxTimeout):
                await self._requests.stop()
            if calls is not None:
                calls.add_to(error)
            raise
        finally:
            del self._time_limits[ident]
            if calls is not None:
                del self._calls[ident]
                await calls.close()

    async def _kill_block(
        self, connection: Connection, ident: int, reply: Future[Reply], cancelled: asyncio.CancelledError
    ) -> None:
        """Kill a block, wait for its death, and add its result to the exception of its caller."""
        if ident in self._calls:
            self._calls[ident].end()
        killed = await self._requests.kill(connection, ident, reply)
        if killed is not None:
            cancelled.result = to_result(killed)  # type: ignore[attr-defined]
            cancelled.reply = killed  # type: ignore[attr-defined]

    def interrupt(self) -> bool:
        """Kill the blocks that run; whoever waits for one gets its result, with the error `sandbox.result.STOPPED`."""
        connection = self._requests.connection
        running = list(self._time_limits)
        if connection is None or not running:
            return False
        for ident in running:
            if (calls := self._calls.get(ident)) is not None:
                calls.end()
            connection.send(protocol.pack(wire.KILL_BLOCK, ident, {}))
        return True
