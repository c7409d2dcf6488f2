"""Whole folders as tar files: snapshots, and folders of the host."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from codeact_sandbox.commands import HasCommands, prepared
from codeact_sandbox.files import sync
from codeact_sandbox.files.service import TRANSFER_TIMEOUT_S, FileService
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.processes import Input
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.runner.worker import tar_files, trees
from codeact_sandbox.types.errors import SandboxFileError, SandboxStartError
from codeact_sandbox.types.filenames import printable

HEADERS = 256 * 1024**2  # what a tar file may have beside its files' content
LIMITS: dict[str, Any] = {"most_entries": 200_000, "most_bytes": 16 * 1024**3}


@asynccontextmanager
async def opened(sandbox: HasCommands, *, changes: bool = False) -> AsyncIterator[FileService]:
    """Yield the service of a sandbox, in which the host's changes are; `changes` is whether the host gets its own."""
    client, workspace = await prepared(sandbox), sandbox._folder.workspace
    try:
        yield FileService(client, sandbox.timeout)
    finally:
        if changes and workspace is not None and client.alive:
            await sync.pull_changed(workspace, client)


async def unpack(sandbox: HasCommands, content: Input, path: str = ".", *, compressed: bool = True) -> None:
    """Fill a folder with what a tar file contains, which may be compressed as those of `snapshot` are."""
    async with opened(sandbox, changes=True) as service:
        await service.ask("unpack", path, content=content, timeout=TRANSFER_TIMEOUT_S, compressed=compressed)


async def restore(sandbox: HasCommands, snapshot: Path) -> None:
    """Fill the workspace of a sandbox that starts with what `snapshot` has written."""
    try:
        await unpack(sandbox, in_threads(file_chunks(snapshot)))
    except SandboxFileError as error:
        message = f"the snapshot {snapshot} could not be restored: {error}"
        raise SandboxStartError(message) from error


async def save(client: RunnerClient, file: BinaryIO, size: int) -> None:
    """Write a workspace of at most so many bytes as a tar file, for `put_back`.

    Files with holes can be larger than all that the workspace can hold; code in the sandbox could
    also send more than it has.
    """
    written = 0

    async def take(data: bytes) -> None:
        nonlocal written
        written += len(data)
        if written > size + HEADERS:
            raise SandboxFileError(errno.EFBIG, "its files are larger than the workspace", ".")
        await in_thread(file.write, data)

    more: dict[str, Any] = {**LIMITS, "most_bytes": size, "compressed": False}
    await FileService(client).operate("pack", ".", take=take, **more)


async def put_back(client: RunnerClient, file: BinaryIO) -> None:
    """Make the workspace contain what `save` has written, and nothing else.

    The host's folder is left alone.
    """
    content = in_threads(_chunks(file))
    await FileService(client).ask("unpack", ".", content=content, compressed=False, replace=True)
    # What was put back does not count as a change by the next block.
    await client.requests.ask({"op": "changed"})


def packed(source: Path) -> Generator[bytes]:
    """Yield a folder of the host as a tar file."""
    with host_errors(source):
        tar_of = cast("Callable[..., Generator[bytes]]", tar_files.tar_of)
        yield from tar_of(str(source), check_link=_check_link, **LIMITS)


def _check_link(name: str, target: str) -> None:
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if target.startswith("/") or inside.split("/")[0] == "..":
        reason = f"the link {printable(name)} leads out of the folder: remove it"
        raise SandboxFileError(errno.EINVAL, reason, name)


def file_chunks(path: Path) -> Generator[bytes]:
    """Yield the content of a file of the host."""
    with host_errors(path), path.open("rb") as file:
        yield from _chunks(file)


def _chunks(file: BinaryIO) -> Generator[bytes]:
    file.seek(0)
    while data := file.read(trees.CHUNK):
        yield data


@contextmanager
def host_errors(path: Path) -> Iterator[None]:
    """Convert an error with a file of the host."""
    try:
        yield
    except SandboxFileError:
        raise
    except OSError as error:
        raise SandboxFileError(error.errno, error.strerror, error.filename or str(path)) from error
