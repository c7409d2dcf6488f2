"""Single files that users copy into and out of a sandbox: methods of `ManagedSandbox`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from codeact_sandbox.files import sync
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import safe_name
from codeact_sandbox.types.protected_names import ProtectedNames

MAX_READ_BYTES = 256 * 1024**2


class HasClient(Protocol):
    """What is started when it is needed."""

    async def ready(self) -> RunnerClient:
        """Return the running sandbox, or a new one if it has ended."""


async def put(sandbox: HasClient, source: Path | str, name: str | None = None) -> None:
    """Copy a file from the host into the workspace.

    Args:
        sandbox: The sandbox.
        source: The file on the host.
        name: Its path relative to the workspace. Default: its own name.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It can't be read, or the sandbox can't store it.
    """
    source = Path(source)
    name = safe_name(name if name is not None else source.name)
    await (await sandbox.ready()).requests.write_file(name, 0o644, in_threads(_chunks(source)))


async def get(sandbox: HasClient, name: str, target: Path | str) -> Path:
    """Copy a file from the workspace to the host.

    Args:
        sandbox: The sandbox.
        name: Its path relative to the workspace.
        target: The file on the host; it is replaced if it exists.

    Returns:
        The file on the host.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It does not exist, is not a regular file, or is too large, or the host can't write it.
    """
    target = Path(target)
    # A sandbox's limits do not apply to the target's folder, and the user has chosen the name.
    folder = Workspace(target.parent, counted=False, protected=ProtectedNames(["*"]))
    await in_thread(folder.prepare)
    return await sync.copy_out(folder, await sandbox.ready(), safe_name(name), target.name, 0o644)


async def write(sandbox: HasClient, name: str, data: bytes | str) -> None:
    """Write a file into the workspace; text is encoded as UTF-8.

    Args:
        sandbox: The sandbox.
        name: Its path relative to the workspace.
        data: Its content.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: The sandbox can't store it.
    """
    content = data.encode() if isinstance(data, str) else data
    pieces = (content[start : start + sync.CHUNK] for start in range(0, len(content), sync.CHUNK))
    await (await sandbox.ready()).requests.write_file(safe_name(name), 0o644, pieces)


async def read(sandbox: HasClient, name: str, max_bytes: int = MAX_READ_BYTES) -> bytes:
    """Read a file of the workspace.

    Args:
        sandbox: The sandbox.
        name: Its path relative to the workspace.
        max_bytes: How many bytes it may have. Default: 256 MiB.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It does not exist, is not a regular file, or is too large for memory.
    """
    content = bytearray()
    async for chunk, size in (await sandbox.ready()).requests.read_file(safe_name(name)):
        content += chunk
        if max(size, len(content)) > max_bytes:
            raise SandboxFileError(f"{name} has {size:,} bytes; at most {max_bytes:,} are read into memory")
    return bytes(content)


async def list_files(sandbox: HasClient) -> list[str]:
    """List the regular files in the workspace."""
    return [entry["name"] for entry in await (await sandbox.ready()).requests.list_files()]


def _chunks(source: Path) -> Generator[bytes]:
    try:
        with source.open("rb", buffering=0) as file:
            while chunk := file.read(sync.CHUNK):
                yield chunk
    except OSError as error:
        raise SandboxFileError(error.errno, error.strerror, str(source)) from error
