"""Copying single files into and out of a sandbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from pathlib import Path

from autogen_codeact.sandbox.errors import SandboxFileError
from autogen_codeact.sandbox.files import sync
from autogen_codeact.sandbox.files.filenames import safe_name
from autogen_codeact.sandbox.files.protected_names import ProtectedNames
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.waiting import in_thread


class FileTransfers(ABC):
    """Methods of an executor for single files."""

    @abstractmethod
    async def _ready(self) -> RunnerClient:
        """Return the running sandbox."""

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
        await sandbox.write_file(target, 0o644, sync.in_threads(_chunks(source)))

    async def download(self, name: str, target: Path | str) -> Path:
        """Copy a file from the workspace to the host.

        Args:
            name: Its path relative to the workspace.
            target: The file on the host, replaced where it exists.

        Returns:
            The file on the host.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It does not exist, is not a regular file, or is too large, or the host can't write.
        """
        target = Path(target)
        sandbox = await self._ready()
        # A sandbox's limits do not apply to the target's folder, and the user has chosen the name.
        folder = Workspace(target.parent, counted=False, protected=ProtectedNames(["*"]))
        await in_thread(folder.prepare)
        return await sync.copy_out(folder, sandbox, safe_name(name), target.name, 0o644)

    async def list_files(self) -> list[str]:
        """List the names of the regular files in the workspace."""
        sandbox = await self._ready()
        return [entry["name"] for entry in await sandbox.list_files()]


def _chunks(source: Path) -> Generator[bytes]:
    try:
        with source.open("rb", buffering=0) as file:
            while chunk := file.read(sync.CHUNK):
                yield chunk
    except OSError as error:
        raise SandboxFileError(error.errno, f"can't read: {error.strerror}", str(source)) from error
