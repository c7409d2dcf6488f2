"""Single files that users copy into and out of a sandbox."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from autogen_codeact.sandbox.files import sync
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.waiting import in_thread, in_threads
from autogen_codeact.sandbox.types.errors import SandboxFileError
from autogen_codeact.sandbox.types.filenames import safe_name
from autogen_codeact.sandbox.types.protected_names import ProtectedNames

MAX_READ_BYTES = 256 * 1024**2


async def put(client: RunnerClient, source: Path, name: str) -> None:
    """Copy a file from the host into the workspace."""
    await client.write_file(safe_name(name), 0o644, in_threads(_chunks(source)))


async def get(client: RunnerClient, name: str, target: Path) -> Path:
    """Copy a file from the workspace to the host and return its path there."""
    # A sandbox's limits do not apply to the target's folder, and the user has chosen the name.
    folder = Workspace(target.parent, counted=False, protected=ProtectedNames(["*"]))
    await in_thread(folder.prepare)
    return await sync.copy_out(folder, client, safe_name(name), target.name, 0o644)


async def write(client: RunnerClient, name: str, data: bytes | str) -> None:
    """Write a file into the workspace."""
    content = data.encode() if isinstance(data, str) else data
    pieces = (content[start : start + sync.CHUNK] for start in range(0, len(content), sync.CHUNK))
    await client.write_file(safe_name(name), 0o644, pieces)


async def read(client: RunnerClient, name: str, max_bytes: int = MAX_READ_BYTES) -> bytes:
    """Read a file of the workspace."""
    content = bytearray()
    async for chunk, size in client.read_file(safe_name(name)):
        content += chunk
        if max(size, len(content)) > max_bytes:
            raise SandboxFileError(f"{name} has {size:,} bytes; at most {max_bytes:,} are read into memory")
    return bytes(content)


def _chunks(source: Path) -> Generator[bytes]:
    try:
        with source.open("rb", buffering=0) as file:
            while chunk := file.read(sync.CHUNK):
                yield chunk
    except OSError as error:
        raise SandboxFileError(error.errno, error.strerror, str(source)) from error
