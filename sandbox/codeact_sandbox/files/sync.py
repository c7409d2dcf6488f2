"""Moving files between `work_dir` on the host and `/workspace` in the sandbox, off the event loop."""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from codeact_sandbox.files.file_writer import FileWriter
from codeact_sandbox.files.workspace import MAX_NAME_SHOWN, HostFile, Workspace
from codeact_sandbox.host.blocks import BlockRequest, artifact
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import Reply
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.host.waiting import in_thread, in_threads, to_the_end
from codeact_sandbox.types.errors import SandboxError, SandboxFileError
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.limits import Limits
from codeact_sandbox.types.protected_names import ProtectedNameError
from codeact_sandbox.types.result import Artifact

CHUNK = 256 * 1024
# Work for one call in a thread, so that others can run in between: chunks of a file, and files.
CHUNKS_PER_CALL = 4
FILES_PER_CALL = 256
# Files that are transferred at the same time, so that many small ones don't wait for a reply each.
MAX_TRANSFERS = 8
MAX_NOTES = 8
MAX_LISTED = 50
PAGE_BYTES = 4096
QUICK_STATS = 500  # what may be done on the event loop; more is done in a thread
Kept = str | None | asyncio.Future[str | None]
"""The path of the file with a block's code on the host, or None; a future of it while it is being written."""


async def push_changes(workspace: Workspace, sandbox: RunnerClient, limits: Limits) -> None:
    """Send new and changed files of the host, before a block."""
    is_quick = len(workspace.settled) <= QUICK_STATS
    if workspace.unchanged() if is_quick else await in_thread(workspace.unchanged):
        return
    async with workspace.transfer_lock:
        workspace.note(*await push(workspace, sandbox, limits))


async def push(
    workspace: Workspace, sandbox: RunnerClient, limits: Limits, *, all_of_them: bool = False
) -> tuple[str, ...]:
    """Send new and changed files of the host.

    A file that does not fit into the sandbox is left out and tried again before the next block, because this block may
    free space.
    """
    files = await in_thread(workspace.outgoing)
    if all_of_them and _needed_bytes(files) > limits.workspace_bytes:
        raise _no_room(files, limits)
    notes = _notes([f"{item.name} {item.reason}" for item in workspace.skipped])
    notes += await _send_folders(workspace, sandbox)
    refused: list[str] = []
    sent = 0
    while sent < len(files) and len(refused) < MAX_NOTES:
        # One by one after a refusal, so that the next ones are not sent in vain.
        batch = files[sent : sent + (1 if refused else MAX_TRANSFERS)]
        errors = await _send(workspace, sandbox, batch)
        workspace.mark_synced([file.name for file, error in zip(batch, errors, strict=True) if error is None])
        sent += len(batch)
        for file, error in zip(batch, errors, strict=True):
            if isinstance(error, SandboxFileError) and not all_of_them:
                advice = "; limits=Limits(workspace=..., files=...) makes room" if error.errno == errno.ENOSPC else ""
                refused.append(f"{printable(file.name)} could not be written there ({error.strerror}{advice}).")
            elif isinstance(error, SandboxFileError) and error.errno == errno.ENOSPC:
                raise _no_room(files, limits) from error
            elif error is not None:
                raise error
    return (*notes, *_notes(refused, more=len(files) - sent))


async def _send_folders(workspace: Workspace, sandbox: RunnerClient) -> list[str]:
    for start in range(0, len(workspace.new_folders), FILES_PER_CALL):
        names = workspace.new_folders[start : start + FILES_PER_CALL]
        try:
            await sandbox.requests.ask({"op": "folders", "names": names})
        except SandboxFileError as error:
            return _notes([f"not all empty folders could be made there ({error.strerror})."])
        workspace.mark_folders(names)
    return []


def _notes(texts: Sequence[str], more: int = 0) -> list[str]:
    notes = [f"Not sent to the sandbox: {text}" for text in texts[:MAX_NOTES]]
    more += len(texts) - len(notes)
    return [*notes, f"Not sent to the sandbox: {more} more files."] if more else notes


def _needed_bytes(files: Iterable[HostFile]) -> int:
    return sum(-(-file.size // PAGE_BYTES) * PAGE_BYTES for file in files)


def _no_room(files: Sequence[HostFile], limits: Limits) -> SandboxFileError:
    limits = limits.resolved()
    needed, room = _needed_bytes(files), limits.workspace_bytes
    error = SandboxFileError(
        f"the files of work_dir do not fit into the sandbox: {len(files):,} files need {needed:,} bytes, and its workspace "
        f"has {room:,} bytes for at most {limits.files:,} files and folders. Give it more with "
        f"limits=Limits(workspace='{needed // 1024**2 + 16}m', files=...), within its memory={limits.memory!r} "
        f"(--option workspace={needed // 1024**2 + 16}m on the command line), show large files with data=, or mount the "
        "folder with bind_dir="
    )
    error.errno = errno.ENOSPC
    return error


async def _send(workspace: Workspace, sandbox: RunnerClient, batch: Sequence[HostFile]) -> list[BaseException | None]:
    """Send some files at the same time, and return the exception of each, or None."""

    async def send(file: HostFile) -> None:
        chunks = workspace.read(file)
        content = [await in_thread(b"".join, chunks)] if file.size <= CHUNK else in_threads(chunks)
        await sandbox.requests.write_file(file.name, file.mode, content)

    return await asyncio.gather(*map(send, batch), return_exceptions=True)


async def pull(workspace: Workspace, sandbox: RunnerClient, reply: Reply) -> tuple[Artifact, ...]:
    """Store new and changed files of a block on the host; one that is not stored has a note with the reason.

    The runner reports a file once, so a cancellation does not keep it from being stored.
    """
    entries = reply.message.get("files", [])
    if entries and reply.message.get("files_cut"):
        workspace.miss("some files", "there are too many in the workspace")
    return await to_the_end(pull_entries(workspace, sandbox, entries, reply.data))


async def pull_entries(
    workspace: Workspace,
    sandbox: RunnerClient,
    entries: object,
    data: bytes = b"",
    *,
    source: str = ".",
) -> tuple[Artifact, ...]:
    """Store files of a folder in the sandbox, `source`; `data` has the content of some."""
    pulling = _Pull(workspace, source)
    async with workspace.transfer_lock:
        # Nearly always this is all: the files are few, and their content is in the reply.
        await in_thread(pulling.begin, entries, data)
        while pulling.inline:
            await in_thread(pulling.store_some)
        while pulling.in_sandbox:
            await _fetch(sandbox, pulling)
        return pulling.result if pulling.result is not None else await in_thread(pulling.finish)


async def pull_changed(workspace: Workspace, sandbox: RunnerClient) -> tuple[Artifact, ...]:
    """Store what has changed since the last block or command."""

    async def pull_them() -> tuple[Artifact, ...]:
        reply = await sandbox.requests.ask({"op": "changed"})
        workspace.note(*map(str, reply.message.get("notes", ())))
        return await pull(workspace, sandbox, reply) if reply.message.get("files") else ()

    return await to_the_end(pull_them())


class _Pull:
    """Stores files on the host: those with content, then those still to be read in the sandbox; for threads."""

    def __init__(self, workspace: Workspace, source: str) -> None:
        self.inline: list[tuple[dict[str, Any], bytes]] = []
        self.in_sandbox: list[dict[str, Any]] = []
        self.result: tuple[Artifact, ...] | None = None
        self.workspace = workspace
        self.source = source
        self._stored: list[Artifact] = []
        # By the number of the error, its reason, and whether the name is protected.
        self._refused: defaultdict[tuple[int, str, bool], list[tuple[dict[str, Any], str]]] = defaultdict(list)

    def begin(self, entries: object, data: bytes) -> None:
        """Sort the files, and store the first of those that have content; finish if these are all."""
        offset = 0
        for entry in checked_entries(entries):
            name, size = entry["name"], entry.get("inline")
            if size is not None:
                self.inline.append((entry, data[offset : offset + size]))
                offset += size
            elif name.endswith("/") or self.workspace.protected.refused_part(name) is not None:
                self.inline.append((entry, b""))  # a folder, or refused without its content
            else:
                self.in_sandbox.append(entry)
        self.store_some()
        if not self.inline and not self.in_sandbox:
            self.finish()

    def store_some(self) -> None:
        """Store some of the files whose content is in memory, as many as one call may store."""
        self.store(self.inline[:FILES_PER_CALL])
        del self.inline[:FILES_PER_CALL]

    def store(self, entries: Iterable[tuple[dict[str, Any], bytes]]) -> None:
        """Store files whose content is in memory."""
        for entry, content in entries:
            try:
                if entry["name"].endswith("/"):
                    self.workspace.make_folder(entry["name"])
                else:
                    path = self.workspace.store(entry["name"], entry["mode"], [content])
                    self.stored(entry, path)
            except SandboxFileError as error:
                self.refuse(entry, error)

    def stored(self, entry: dict[str, Any], path: Path) -> None:
        """Record that a file was stored."""
        self._stored.append(artifact(entry, path=path))

    def refuse(self, entry: dict[str, Any], error: SandboxFileError) -> None:
        """Record that a file was not stored, grouped by reason."""
        # Not the error: it would keep the content of the file in memory.
        reason = str(error.reason or error.strerror or error)
        number = error.errno if error.errno is not None and error.errno in errno.errorcode else 0
        # A bad name is part of its reason, and there may be thousands of them.
        key = reason if error.reason is not None and number != errno.EINVAL else ""
        self._refused[number, key, isinstance(error, ProtectedNameError)].append((entry, reason))

    def finish(self) -> tuple[Artifact, ...]:
        """Report the files that were not stored, in the result, with a limited number of sentences."""
        listed: list[Artifact] = []
        workspace = self.workspace
        for (number, _, is_protected), group in self._refused.items():
            reason = printable(group[0][1])
            for entry, _ in group:
                workspace.differs(entry["name"])
                # What code has closed itself, it does not give away.
                if not is_protected and number != errno.EACCES:
                    workspace.miss(entry["name"], reason)
            if is_protected and not workspace.first_report(reason):
                continue
            count, room = len(group), max(0, MAX_LISTED - len(listed))
            if count > room or is_protected or number == errno.EDQUOT:
                shown = printable(group[0][0]["name"])[:MAX_NAME_SHOWN]
                others = f" (and {count - 1:,} more)" if count > 1 else ""
                workspace.note(f"Not copied to work_dir: {shown}{others}: {reason}")
            # Models read it, and must not see paths of the host.
            listed += [
                artifact({**entry, "name": printable(entry["name"])}, note=f"not copied: {why}")
                for entry, why in group[:room]
            ]
        self.result = tuple(sorted([*self._stored, *listed], key=lambda item: item.name))
        return self.result


async def _fetch(sandbox: RunnerClient, pulling: _Pull) -> None:
    """Get the content of some files and store them."""
    entries = pulling.in_sandbox[:MAX_TRANSFERS]
    del pulling.in_sandbox[:MAX_TRANSFERS]

    async def copy(entry: dict[str, Any]) -> None:
        name = entry["name"]
        try:
            source = posixpath.join(pulling.source, name)
            pulling.stored(entry, await copy_out(pulling.workspace, sandbox, source, name, entry["mode"]))
        except SandboxFileError as error:
            pulling.refuse(entry, error)

    await asyncio.gather(*map(copy, entries))


async def copy_out(workspace: Workspace, sandbox: RunnerClient, name: str, target: str, mode: int) -> Path:
    """Copy a file of the sandbox to the host: a small one at once, else chunk by chunk."""
    # Not the thread's result: that is lost if this call is cancelled.
    writers: list[FileWriter] = []

    def write(size: int) -> None:
        if not writers:
            writers.append(workspace.begin(target, mode, size))
        writers[0].write(*waiting)

    waiting: list[bytes] = []
    try:
        async for chunk, size in sandbox.requests.read_file(name):
            if size > workspace.max_file_bytes:
                most = workspace.max_file_bytes
                raise SandboxFileError(errno.EFBIG, f"it has {size:,} bytes; at most {most:,} are copied", name)
            waiting.append(chunk)
            if len(waiting) == CHUNKS_PER_CALL:
                await in_thread(write, size)
                waiting = []
        if not writers:
            return await in_thread(workspace.store, target, mode, waiting)
        await in_thread(write, size)
        return await in_thread(workspace.commit, writers[0])
    finally:
        for writer in writers:
            await in_thread(writer.abandon)


def keep_code(folder: Workspace, request: BlockRequest) -> Kept:
    """Keep the code of a block on the host, as AutoGen's executors do; remove such a file of an earlier run if it is deleted."""
    name = request.filename
    assert name is not None
    if request.message["delete"]:
        folder.remove(name)
        return str(folder.root / name)
    return asyncio.get_running_loop().run_in_executor(None, _keep_code, folder, name, request.code)


def _keep_code(workspace: Workspace, filename: str, code: bytes) -> str | None:
    try:
        return str(workspace.store(filename, 0o644, [code]))
    except SandboxError as error:
        reason = printable(str(getattr(error, "reason", error)))
        if workspace.first_report(reason):
            workspace.note(f"Not copied to work_dir: {printable(filename)}: {reason}")
        return None
