"""Running blocks in tests."""

import textwrap
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from docker.api.client import APIClient
from docker.errors import APIError

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    ExecutionResult,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor

FORGE = """
    import json, os, socket, stat, struct, sys, threading

    def frame(kind, ident, message, data=b""):
        head = json.dumps(message).encode()
        payload = struct.pack("!I", len(head)) + head + data
        return struct.pack("!cII", kind, ident, len(payload)) + payload

    def own_ident():
        # It can't be guessed, but found on the stack of the interpreter that runs the block.
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and type(frame.f_locals.get("ident")) is not int:
            frame = frame.f_back
        return frame.f_locals["ident"] if frame else 0

    def control_socket():
        # The only socket that a block has.
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    return fd
            except OSError:
                pass
"""


def shared_executor(
    *modes: str, kind: type[SandboxCodeExecutor] = BubblewrapCommandLineCodeExecutor, **options: Any
) -> Any:
    """Make a fixture: an executor that all tests of a module share, in each of the modes if there are some."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module", params=modes or None)
    async def shared(request: pytest.FixtureRequest) -> AsyncIterator[SandboxCodeExecutor]:
        request.getfixturevalue("sandbox_image" if kind is DockerCommandLineCodeExecutor else "bubblewrap")
        chosen = {**options, "mode": request.param} if modes else options
        async with kind(**chosen) as started:
            yield started

    return shared


def pause_container(client: APIClient, name: str | None) -> None:
    """Pause a container; with version 1 of control groups, runc may give up while the container's processes are busy."""
    until = time.monotonic() + 30
    while True:
        try:
            client.pause(name)
        except APIError as error:
            if "unable to freeze" not in str(error) or time.monotonic() > until:
                raise
        else:
            return


def block(code: str, language: str = "python") -> CodeBlock:
    """A block; an empty first line and the indentation common to all lines are taken off."""
    return CodeBlock(code=textwrap.dedent(code).removeprefix("\n"), language=language)


async def run(executor: SandboxCodeExecutor, code: str | CodeBlock, language: str = "python") -> ExecutionResult:
    """Run one block."""
    return await executor.execute_code_blocks(
        [code if isinstance(code, CodeBlock) else block(code, language)], CancellationToken()
    )


async def out(executor: SandboxCodeExecutor, code: str | CodeBlock, language: str = "python") -> str:
    """Run one block that must end well, and give its output."""
    result = await run(executor, code, language)
    assert (result.outcome, result.exit_code) == ("ok", 0), result
    return result.output


def short_result(result: ExecutionResult) -> tuple[str, int, str]:
    """Outcome, exit code and output."""
    return result.outcome, result.exit_code, result.output


def inspect(client: APIClient, name: str | None) -> dict[str, Any]:
    """What the engine says of a container."""
    assert name is not None
    found: dict[str, Any] = client.inspect_container(name)
    return found
