"""Keeping `work_dir` on the host and `/workspace` in the sandbox in step."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from typing import Any

from .block_reply import artifact
from .connection import Reply
from .errors import SandboxError, SandboxFileError
from .filenames import printable
from .result import Artifact
from .sandbox import Sandbox, checked_entries
from .workspace import HostFile, Workspace

CHUNK = 256 * 1024
# Files on their way at the same time, so that many small ones don't wait for an answer each; the runner takes up to 64.
SENT_AT_ONCE = 32
MOST_REFUSED = 8
logger = logging.getLogger("autogen_codeact")


async def push(workspace: Workspace, sandbox: Sandbox, *, all_of_them: bool = False) -> tuple[str, ...]:
    """Send what is new or changed on the host.

    A file for which the sandbox has no place is left out and tried again with the next block: the block may be the one that
    makes room for it.

    Args:
        workspace: The host's folder.
        sandbox: Where it goes.
        all_of_them: Whether a file for which there is no place is an error. Default False.

    Returns:
        Sentences about files that were left out.

    Raises:
        SandboxFileError: `all_of_them`, and the sandbox could not take a file.
    """
    files = workspace.outgoing()
    notes = [f"Not sent to the sandbox: {item.name} {item.reason}" for item in workspace.skipped]
    refused: list[str] = []
    sent = 0
    while sent < len(files) and len(refused) < MOST_REFUSED:
        batch = files[sent : sent + (1 if refused else SENT_AT_ONCE)]
        sending = (sandbox.write_file(file.name, file.mode, workspace.read(file)) for file in batch)
        ended = await asyncio.gather(*sending, return_exceptions=True)
        workspace.mark_synced([file.name for file, error in zip(batch, ended, strict=True) if error is None])
        sent += len(batch)
        for file, error in zip(batch, ended, strict=True):
            if isinstance(error, SandboxFileError) and not all_of_them:
                refused.append(f"{printable(file.name)} could not be written there ({error.strerror}).")
            elif error is not None:
                raise error
    notes += [f"Not sent to the sandbox: {text}" for text in refused[:MOST_REFUSED]]
    if left := len(files) - sent + len(refused[MOST_REFUSED:]):
        notes.append(f"Not sent to the sandbox: {left} more files.")
    return tuple(notes)


async def pull(workspace: Workspace, sandbox: Sandbox, reply: Reply) -> tuple[Artifact, ...]:
    """Store on the host what a block made or changed.

    Args:
        workspace: The host's folder.
        sandbox: Where the files are.
        reply: The block's reply with the list of changed files and the content of small ones.

    Returns:
        The files; one that could not be stored says why.
    """
    artifacts = []
    offset = 0
    for entry in checked_entries(reply.message.get("files", [])):
        inline = entry.get("inline")
        content: bytes | None = None
        if inline is not None:
            content = reply.data[offset : offset + inline]
            offset += inline
        artifacts.append(await _store(workspace, sandbox, entry, content))
    return tuple(artifacts)


async def _store(workspace: Workspace, sandbox: Sandbox, entry: dict[str, Any], content: bytes | None) -> Artifact:
    name, mode = entry["name"], entry["mode"]
    try:
        if content is not None:
            return artifact(entry, path=workspace.store(name, mode, [content]))
        chunks = await read_whole(sandbox, name, workspace.max_file_bytes)
        return artifact(entry, path=workspace.store(name, mode, chunks))
    except SandboxFileError as error:
        workspace.stays_apart(name)
        shown = printable(name)
        logger.warning("the file %s stays in the sandbox: %s", shown, printable(str(error)))
        # A model reads it, and the host's folders are none of its business.
        note = f"not copied: {error.reason or error.strerror or error}"
        return artifact({**entry, "name": shown}, note=note)


async def read_whole(sandbox: Sandbox, name: str, limit: int) -> list[bytes]:
    """Read a file of the sandbox.

    Args:
        sandbox: Where it is.
        name: Its path relative to the workspace.
        limit: Bytes that it may have.

    Returns:
        Its content, in pieces.

    Raises:
        SandboxFileError: It is not there, not a regular file, or too large.
    """
    chunks = []
    total = 0
    async for chunk, size in sandbox.read_file(name):
        total += len(chunk)
        if max(size, total) > limit:
            raise SandboxFileError(
                errno.EFBIG, f"it has {max(size, total):,} bytes; at most {limit:,} are copied", name
            )
        chunks.append(chunk)
    return chunks


def keep_code(workspace: Workspace, filename: str, code: bytes | None) -> str | None:
    """Keep the code of a block on the host, as AutoGen's executors do.

    Args:
        workspace: The host's folder.
        filename: Name of the file.
        code: The code; None to have no such file, also where an earlier run has left it.

    Returns:
        The file's path, or None where it could not be stored.
    """
    if code is None:
        with contextlib.suppress(OSError):
            (workspace.root / filename).unlink()
        return str(workspace.root / filename)
    try:
        if _holds(workspace, filename, code):
            return str(workspace.root / filename)
        return str(workspace.store(filename, 0o644, [code]))
    except SandboxError as error:
        logger.warning("the code was not kept on the host: %s", error)
        return None


def _holds(workspace: Workspace, filename: str, code: bytes) -> bool:
    """Whether the file is there already; to replace it by itself would have the disk written to, which takes milliseconds."""
    file = HostFile(filename, len(code) + 1, 0o644, workspace.root / filename)
    try:
        return b"".join(workspace.read(file)) == code
    except SandboxFileError:
        return False
