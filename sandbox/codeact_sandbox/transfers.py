"""Files and folders that users copy into and out of a sandbox: methods of `AsyncSandbox`."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Generator, Iterable
from pathlib import Path

from codeact_sandbox import trees
from codeact_sandbox.commands import HasCommands
from codeact_sandbox.files import sync
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import safe_name
from codeact_sandbox.types.protected_names import ProtectedNames

MAX_READ_BYTES = 256 * 1024**2


async def put_file(sandbox: HasCommands, source: Path | str, name: str | None = None) -> str | None:
    """Copy a file from the host into the workspace, and into `work_dir`.

    Args:
        source: The file on the host.
        name: Its path relative to the workspace. Default: its own name.

    Returns:
        Why it is not in `work_dir`; None if it is.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It can't be read, or the sandbox can't store it.
    """
    source = Path(source)
    return await _write(sandbox, safe_name(name if name is not None else source.name), in_threads(_chunks(source)))


async def _write(sandbox: HasCommands, name: str, pieces: Iterable[bytes] | AsyncGenerator[bytes]) -> str | None:
    """Write a file into the sandbox and into `work_dir`."""
    client, workspace = await sandbox.ready(), sandbox._folder.workspace
    await client.requests.write_file(name, 0o644, pieces)
    return await sync.pull_file(workspace, client, name) if workspace is not None else None


async def put(sandbox: HasCommands, source: Path | str, name: str | None = None) -> None:
    """Copy a file or a folder from the host into the sandbox.

    Args:
        source: The file or folder on the host. Links in a folder are kept; those that lead out of it are an error.
        name: Its path relative to the workspace; of a folder, also absolute. Default: its own name.

    Raises:
        ValueError: The name of a file could leave the workspace.
        SandboxFileError: It can't be read, or the sandbox can't store it.
    """
    source = Path(source)
    if source.is_dir():
        await trees.put_folder(sandbox, source, name if name is not None else source.resolve().name)
    else:
        await put_file(sandbox, source, name)


async def get_file(sandbox: HasCommands, name: str, target: Path | str) -> Path:
    """Copy a file from the workspace to the host.

    Args:
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


async def get(sandbox: HasCommands, name: str, target: Path | str) -> Path:
    """Copy a file or a folder from the sandbox to the host.

    Args:
        name: Its path relative to the workspace; of a folder, also absolute, and "." is the workspace.
        target: The file on the host, which is replaced if it exists; or the folder, which is made, or filled up.

    Returns:
        The file or folder on the host.

    Raises:
        ValueError: The name of a file could leave the workspace.
        SandboxFileError: It does not exist or is too large, or the host can't write it. Of a folder, links and protected names
            (`.git` and the like) are left out, and named in this error after all else has been copied.
    """
    if name != "." and not name.startswith("/"):
        try:
            return await get_file(sandbox, name, target)
        except SandboxFileError as error:
            if error.errno != errno.EINVAL or (await trees.stat(sandbox, name)).type != "folder":
                raise
    return await trees.get_folder(sandbox, name, Path(target))


async def write(sandbox: HasCommands, name: str, data: bytes | str) -> str | None:
    """Write a file into the sandbox and into `work_dir`, with the folders above it; text is encoded as UTF-8.

    Args:
        name: Its path relative to the workspace, or absolute.
        data: Its content.

    Returns:
        Why it is not in `work_dir`; None if it is, or lies outside the workspace.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: The sandbox can't store it.
    """
    content = data.encode() if isinstance(data, str) else data
    if name.startswith("/"):
        await trees.write(sandbox, name, content)
        return None
    pieces = (content[start : start + sync.CHUNK] for start in range(0, len(content), sync.CHUNK))
    return await _write(sandbox, safe_name(name), pieces)


async def read(
    sandbox: HasCommands, name: str, max_bytes: int = MAX_READ_BYTES, *, offset: int = 0, size: int | None = None
) -> bytes:
    """Read a file of the sandbox, or a part of it.

    Args:
        name: Its path relative to the workspace, or absolute.
        max_bytes: How many bytes are read at most. Default: 256 MiB.
        offset: Where to begin, in bytes. Default: at the beginning.
        size: How many bytes to read. Default: all that follow.

    Raises:
        ValueError: The name could leave the workspace.
        SandboxFileError: It does not exist, is not a regular file, or is too large for memory.
    """
    if offset < 0 or (size is not None and size < 0):
        raise ValueError("offset and size must not be negative")
    if name.startswith("/") or offset or size is not None:
        return await trees.read(sandbox, name, offset, size, max_bytes)
    content = bytearray()
    async for chunk, whole in (await sandbox.ready()).requests.read_file(safe_name(name)):
        content += chunk
        if max(whole, len(content)) > max_bytes:
            raise SandboxFileError(f"{name} has {whole:,} bytes; at most {max_bytes:,} are read into memory")
    return bytes(content)


async def list_files(sandbox: HasCommands) -> list[str]:
    """List the regular files in the workspace."""
    return [entry["name"] for entry in await (await sandbox.ready()).requests.list_files()]


def _chunks(source: Path) -> Generator[bytes]:
    with trees.host_errors(source), source.open("rb", buffering=0) as file:
        while chunk := file.read(sync.CHUNK):
            yield chunk
