"""Single files that users copy into and out of a sandbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from pathlib import Path

from autogen_codeact.sandbox.errors import SandboxFileError
from autogen_codeact.sandbox.files import sync
from autogen_codeact.sandbox.files.filenames import safe_name
from autogen_codeact.sandbox.files.protected import WriteBack
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.loops import in_thread

MAX_READ_BYTES = 256 * 1024**2


async def put(client: RunnerClient, source: Path, name: str) -> None:
    """Copy a file from the host into the workspace.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It can't be read, or the sandbox can't store it.
    """
    await client.write_file(safe_name(name), 0o644, sync.in_pieces(_chunks(source)))


async def get(client: RunnerClient, name: str, target: Path) -> Path:
    """Copy a file from the workspace to the host and return its path there.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It does not exist, is not a regular file, or is too large, or the host can't write it.
    """
    # A sandbox's limits do not apply to the target's folder, and the user has chosen the name.
    folder = Workspace(target.parent, counted=False, write_back=WriteBack(["*"]))
    await in_thread(folder.prepare)
    return await sync.stream(folder, client, safe_name(name), target.name, 0o644)


async def write(client: RunnerClient, name: str, data: bytes | str) -> None:
    """Write a file into the workspace.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: The sandbox can't store it.
    """
    content = data.encode() if isinstance(data, str) else data
    pieces = (content[start : start + sync.CHUNK] for start in range(0, len(content), sync.CHUNK))
    await client.write_file(safe_name(name), 0o644, pieces)


async def read(client: RunnerClient, name: str) -> bytes:
    """Read a file of the workspace.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It does not exist, is not a regular file, or has more than 256 MiB.
    """
    content = bytearray()
    async for chunk, size in client.read_file(safe_name(name)):
        content += chunk
        if max(size, len(content)) > MAX_READ_BYTES:
            raise SandboxFileError(
                f"{name} has {size:,} bytes; at most {MAX_READ_BYTES:,} are read into memory: use get()"
            )
    return bytes(content)


class FileTransfers(ABC):
    """What an executor can do with single files."""

    @abstractmethod
    async def _ready(self) -> RunnerClient:
        """The running sandbox."""

    async def upload(self, source: Path | str, name: str | None = None) -> None:
        """Copy a file from the host into the workspace.

        Args:
            source: The file on the host.
            name: Its path relative to the workspace; its own name by default.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It can't be read, or the sandbox can't take it.
        """
        source = Path(source)
        target = safe_name(name if name is not None else source.name)
        sandbox = await self._ready()
        await sandbox.write_file(target, 0o644, sync.in_pieces(_chunks(source)))

    async def download(self, name: str, target: Path | str) -> Path:
        """Copy a file from the workspace to the host.

        Args:
            name: Its path relative to the workspace.
            target: The file on the host, replaced where it exists.

        Returns:
            The file on the host.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It is not there, not a regular file, too large, or the host can't write.
        """
        target = Path(target)
        sandbox = await self._ready()
        # A sandbox's limits do not apply to the target's folder, and the user has chosen the name.
        folder = Workspace(target.parent, counted=False, write_back=WriteBack(["*"]))
        await in_thread(folder.prepare)
        return await sync.stream(folder, sandbox, safe_name(name), target.name, 0o644)

    async def list_files(self) -> list[str]:
        """Names of the regular files in the workspace."""
        sandbox = await self._ready()
        return [entry["name"] for entry in await sandbox.list_files()]


def _chunks(source: Path) -> Generator[bytes]:
    try:
        with source.open("rb", buffering=0) as file:
            while chunk := file.read(sync.CHUNK):
                yield chunk
    except OSError as error:
        raise SandboxFileError(error.errno, f"can't read: {error.strerror}", str(source)) from error
