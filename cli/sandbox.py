"""The sandbox that a command's options ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from autogen_codeact.cli.ending import CommandError
from autogen_codeact.executors import DEFAULT_IMAGE, DockerCommandLineCodeExecutor
from autogen_codeact.executors.docker_engine import connect, engine_errors


@dataclass(frozen=True)
class SandboxChoice:
    """What the user chose.

    Args:
        image: Docker image; None for the default one.
        mode: `process` or `session`.
        timeout: Seconds for one block.
        work_dir: Folder of the host that is kept in step; None for a temporary one.
    """

    image: str | None = None
    mode: str = "process"
    timeout: float = 60
    work_dir: Path | None = None


@asynccontextmanager
async def started(choice: SandboxChoice) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """Start the sandbox and stop it afterwards.

    Args:
        choice: Which one.

    Raises:
        CommandError: An option can't be right.
        SandboxError: It did not come up.
    """
    try:
        executor = DockerCommandLineCodeExecutor(
            choice.image if choice.image is not None else DEFAULT_IMAGE,
            mode=cast(Literal["process", "session"], choice.mode),
            timeout=choice.timeout,
            work_dir=choice.work_dir,
            # The folder is the user's: what the code made belongs there, the code itself does not.
            delete_tmp_files=True,
        )
        await executor.start()
    except ValueError as error:
        raise CommandError(str(error)) from error
    try:
        yield executor
    finally:
        await executor.stop()


async def inspect(executor: DockerCommandLineCodeExecutor) -> dict[str, Any]:
    """Ask the engine what the running container really is.

    Args:
        executor: A started one.

    Raises:
        SandboxError: The engine does not answer.
    """

    def ask() -> dict[str, Any]:
        client = connect()
        try:
            with engine_errors("looking at the sandbox"):
                return dict(client.inspect_container(str(executor.container_name)))
        finally:
            client.close()

    return await asyncio.to_thread(ask)
