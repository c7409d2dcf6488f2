"""Strands Agents: a sandbox as the execution environment of an agent's tools."""

from __future__ import annotations

import asyncio
import codecs
import posixpath
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Any, cast

import strands.sandbox
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError
from strands.sandbox.types import ExecutionResult, FileInfo, OutputFile, StreamChunk

from codeact_sandbox import AsyncSandbox, ExecResult, OutputChunk, Result, SandboxFileError
from codeact_sandbox.integrations.answers import answer_of

PYTHON = ("python", "python3")
Stream = AsyncGenerator[StreamChunk | ExecutionResult, None]


class CodeactSandbox(strands.sandbox.Sandbox):
    """An environment: `Agent(sandbox=CodeactSandbox(AsyncSandbox()))`.

    Commands and files are those of the sandbox. Python without `cwd` and `env` runs in one live interpreter, whose variables stay
    and which can call the sandbox's host tools; other languages are commands that read the code from their standard input.

    Args:
        sandbox: It starts with the first operation; who made it stops it.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox

    async def execute_streaming(
        self,
        command: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **_: Any,
    ) -> Stream:
        """Run a line of shell. Without a timeout it has the sandbox's."""
        async for item in self._command(command, None, timeout, cwd, env):
            yield item

    async def execute_code_streaming(
        self,
        code: str,
        language: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **_: Any,
    ) -> Stream:
        if language not in PYTHON or cwd is not None or env:
            async for item in self._command([language, "-"], code, timeout, cwd, env):
                yield item
            return
        async for item in self.sandbox.stream(code, timeout=timeout):
            if isinstance(item, OutputChunk):
                yield StreamChunk(item.text, "stdout")
            else:
                yield await self._result(item, timeout)

    async def _result(self, result: Result, timeout: float | None) -> ExecutionResult:
        text, images = await asyncio.to_thread(answer_of, result)
        if result.outcome == "timeout":
            raise SandboxTimeoutError(timeout or result.duration_s, text)
        files = [
            OutputFile(f"figure-{number}.{kind.partition('/')[2]}", data, kind)
            for number, (data, kind) in enumerate(images, start=1)
        ]
        failed = result.exit_code != 0
        return ExecutionResult(result.exit_code, "" if failed else text, text if failed else "", files)

    async def _command(
        self, command: str | list[str], stdin: str | None, timeout: float | None, cwd: str | None, env: Any
    ) -> Stream:
        chunks: asyncio.Queue[StreamChunk | None] = asyncio.Queue(maxsize=64)
        decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

        async def put(stream: str, data: bytes) -> None:
            await chunks.put(StreamChunk(decoders[stream].decode(data), cast(Any, stream)))

        async def run() -> ExecResult:
            try:
                done = await self.sandbox.exec(command, stdin=stdin, timeout=timeout, cwd=cwd, env=env, on_output=put)
            except Exception:
                await chunks.put(None)
                raise
            await chunks.put(None)
            return done

        running = asyncio.ensure_future(run())
        try:
            while (chunk := await chunks.get()) is not None:
                yield chunk
            done = await running
        finally:
            running.cancel()
        if done.timed_out:
            raise SandboxTimeoutError(timeout or done.duration_s, done.stdout, done.stderr)
        yield ExecutionResult(done.exit_code, done.stdout, done.stderr)

    async def read_file(self, path: str, **_: Any) -> bytes:
        with _errors(path):
            return await self.sandbox.read(path)

    async def write_file(self, path: str, content: bytes, **_: Any) -> None:
        with _errors(path):
            await self.sandbox.write(path, content)

    async def remove_file(self, path: str, **_: Any) -> None:
        with _errors(path):
            await self.sandbox.remove(path)

    async def list_files(self, path: str, **_: Any) -> list[FileInfo]:
        try:
            found = await self.sandbox.ls(path)
        except SandboxFileError as error:
            raise SandboxPathNotFoundError(path) from error
        return [
            FileInfo(posixpath.basename(each.path), each.type == "folder", each.size if each.type == "file" else None)
            for each in found
        ]


@contextmanager
def _errors(path: str) -> Generator[None]:
    try:
        yield
    except SandboxFileError as error:
        raise OSError(error.errno, error.strerror, path) from error  # `FileNotFoundError` and the like
