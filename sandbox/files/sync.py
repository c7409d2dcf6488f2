"""Moving files between `work_dir` on the host and `/workspace` in the sandbox, off the event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from autogen_codeact.sandbox.errors import SandboxError, SandboxFileError
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.files.protected import ProtectedNameError, left_out
from autogen_codeact.sandbox.files.scan import TooLongError
from autogen_codeact.sandbox.files.workspace import HostFile, Incoming, Workspace
from autogen_codeact.sandbox.host.block_reply import artifact
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.connection import Reply
from autogen_codeact.sandbox.host.messages import checked_entries
from autogen_codeact.sandbox.host.waiting import in_thread
from autogen_codeact.sandbox.limits import Limits, parse_size
from autogen_codeact.sandbox.result import Artifact

CHUNK = 256 * 1024
# Work for one call in a thread, so that others can run in between: pieces of a file, and files.
WRITTEN_AT_ONCE = 4
FILES_AT_ONCE = 256
# Files on their way at the same time, so that many small ones don't wait for an answer each; the runner takes up to 64.
MOVED_AT_ONCE = 32
MOVED_BYTES = 2 * 1024**2
MOST_REFUSED = 8
MOST_LISTED = 50
MOST_SHOWN = 200
PAGE_BYTES = 4096
QUICK_BYTES = 64 * 1024
Kept = str | None | asyncio.Future[str | None]
"""The file with the code of a block on the host, or None; while it is being written, a future of it."""

T = TypeVar("T")
logger = logging.getLogger("autogen_codeact")


async def before_block(workspace: Workspace, sandbox: RunnerClient, limits: Limits) -> None:
    """Send new and changed files of the host; if there are none, this takes almost no time.

    Args:
        workspace: The host's folder; it receives the notes on files that were left out.
        sandbox: Where it goes.
        limits: What the sandbox may use.

    Raises:
        SandboxFileError: The folder does not exist or can't be read.
    """
    for name in sandbox.undelivered:
        workspace.stays_apart(name)
    if workspace.unchanged() if workspace.looks_quick else await in_thread(workspace.unchanged):
        return
    async with workspace.turns:
        workspace.note(*await push(workspace, sandbox, limits))


async def after_block(workspace: Workspace, sandbox: RunnerClient, reply: Reply) -> tuple[Artifact, ...]:
    """Store new and changed files of a block on the host; arguments and result as for `pull`."""
    if not reply.message.get("files") and not sandbox.undelivered:
        return ()
    try:
        async with workspace.turns:
            return await pull(workspace, sandbox, reply)
    except asyncio.CancelledError:
        sandbox.add_undelivered(checked_entries(reply.message.get("files", [])))
        raise


async def close(workspace: Workspace, *, let_finish: bool) -> None:
    """Stop storing files.

    Args:
        workspace: The host's folder.
        let_finish: Whether to finish storing the files of a block first.
    """
    if let_finish:
        async with workspace.turns:
            await in_thread(workspace.close)
    else:
        await in_thread(workspace.close)


async def push(
    workspace: Workspace, sandbox: RunnerClient, limits: Limits, *, all_of_them: bool = False
) -> tuple[str, ...]:
    """Send new and changed files of the host.

    A file that does not fit into the sandbox is left out and tried again before the next block, because this block may
    free space.

    Args:
        workspace: The host's folder.
        sandbox: Where it goes.
        limits: What the sandbox may use.
        all_of_them: Whether a file that does not fit is an error. Default False.

    Returns:
        Notes on files that were left out.

    Raises:
        SandboxFileError: `all_of_them`, and the sandbox could not take a file.
    """
    files = await _outgoing(workspace)
    if all_of_them:
        _check_room(files, limits)
    notes = _notes([f"{item.name} {item.reason}" for item in workspace.skipped])
    refused: list[str] = []
    sent = 0
    while sent < len(files) and len(refused) < MOST_REFUSED:
        batch = (
            files[sent : sent + 1] if refused else _batch(files[sent : sent + MOVED_AT_ONCE], lambda file: file.size)
        )
        ended = await _send(workspace, sandbox, batch)
        workspace.mark_synced([file.name for file, error in zip(batch, ended, strict=True) if error is None])
        sent += len(batch)
        for file, error in zip(batch, ended, strict=True):
            if isinstance(error, SandboxFileError) and not all_of_them:
                refused.append(f"{printable(file.name)} could not be written there ({_why(error)}).")
            elif isinstance(error, SandboxFileError) and error.errno == errno.ENOSPC:
                raise _no_room(files, limits) from error
            elif error is not None:
                raise error
    return (*notes, *_notes(refused, more=len(files) - sent))


def _batch(items: Sequence[T], size: Callable[[T], int]) -> Sequence[T]:
    """Take the items that may be transferred at the same time; a large one counts as one piece."""
    room = MOVED_BYTES
    for number, item in enumerate(items):
        room -= min(size(item), CHUNK)
        if room < 0:
            return items[: max(1, number)]
    return items


async def _outgoing(workspace: Workspace) -> list[HostFile]:
    try:
        found = workspace.at_once(workspace.outgoing, quick=True)
    except TooLongError:
        found = None
    return found if found is not None else await in_thread(workspace.outgoing)


def _notes(texts: Sequence[str], more: int = 0) -> list[str]:
    notes = [f"Not sent to the sandbox: {text}" for text in texts[:MOST_REFUSED]]
    more += len(texts) - len(notes)
    return [*notes, f"Not sent to the sandbox: {more} more files."] if more else notes


def _why(error: SandboxFileError) -> str:
    larger = "; limits=Limits(workspace=..., files=...) makes room" if error.errno == errno.ENOSPC else ""
    return f"{error.strerror}{larger}"


def _check_room(files: Sequence[HostFile], limits: Limits) -> None:
    if _needed(files) > parse_size(limits.workspace):
        raise _no_room(files, limits)


def _needed(files: Iterable[HostFile]) -> int:
    return sum(-(-file.size // PAGE_BYTES) * PAGE_BYTES for file in files)


def _no_room(files: Sequence[HostFile], limits: Limits) -> SandboxFileError:
    needed, room = _needed(files), parse_size(limits.workspace)
    error = SandboxFileError(
        f"the files of work_dir do not fit into the sandbox: {len(files):,} files need {needed:,} bytes, and its workspace "
        f"has {room:,} bytes for at most {limits.files:,} files and folders. Give it more with "
        f"limits=Limits(workspace='{needed // 1024**2 + 16}m', files=...), within its memory={limits.memory!r}, or mount the "
        "folder with bind_dir="
    )
    error.errno = errno.ENOSPC
    return error


async def _send(workspace: Workspace, sandbox: RunnerClient, batch: Sequence[HostFile]) -> list[BaseException | None]:
    """Send some files at the same time, and return the exception of each, or None."""
    small = [file for file in batch if file.size <= CHUNK]
    read = await in_thread(_read_all, workspace, small) if small else []
    contents = {file.name: content for file, content in zip(small, read, strict=True)}

    async def send(file: HostFile) -> None:
        content = contents.pop(file.name, None)
        if isinstance(content, SandboxError):
            raise content
        chunks = [content] if content is not None else in_pieces(workspace.read(file))
        await sandbox.write_file(file.name, file.mode, chunks)

    return await asyncio.gather(*map(send, batch), return_exceptions=True)


def _read_all(workspace: Workspace, files: Iterable[HostFile]) -> list[bytes | SandboxError]:
    contents: list[bytes | SandboxError] = []
    for file in files:
        try:
            contents.append(b"".join(workspace.read(file)))
        except SandboxError as error:
            contents.append(error)
    return contents


async def in_pieces(chunks: Generator[bytes]) -> AsyncIterator[bytes]:
    """Iterate over a generator, each step in a thread."""
    try:
        while (chunk := await in_thread(next, chunks, None)) is not None:
            yield chunk
    finally:
        chunks.close()  # it may have an open file


@dataclass
class _Refused:
    """Files that were not stored for the same reason."""

    number: int
    reason: str
    is_protected: bool
    texts: list[str] = field(default_factory=list)
    entries: list[tuple[dict[str, Any], str]] = field(default_factory=list)


@dataclass
class _Pulled:
    """The files of one block: those with content, those still to be read in the sandbox, and the outcome."""

    artifacts: list[Artifact] = field(default_factory=list)
    refused: dict[tuple[int, str], _Refused] = field(default_factory=dict)
    inline: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    result: tuple[Artifact, ...] | None = None

    def attempt(self, entry: dict[str, Any], store: Callable[[], Path]) -> None:
        """Store a file and record the outcome."""
        try:
            self.artifacts.append(artifact(entry, path=store()))
        except SandboxFileError as error:
            self.refuse(entry, error)

    def refuse(self, entry: dict[str, Any], error: SandboxFileError) -> None:
        """Record that a file was not stored, grouped by reason."""
        if entry.get("late") and error.errno == errno.ENOENT and error.reason is None:
            return  # removed in the sandbox since
        # Not the error: it would keep the content of the file in memory.
        reason = str(error.reason or error.strerror or error)
        number = error.errno if error.errno is not None and error.errno in errno.errorcode else 0
        # A bad name is part of its reason, and there may be thousands of them.
        key = number, reason if error.reason is not None and number != errno.EINVAL else ""
        about = _Refused(number, printable(reason), isinstance(error, ProtectedNameError))
        group = self.refused.setdefault(key, about)
        group.entries.append((entry, reason))
        if len(group.texts) < MOST_REFUSED:
            group.texts.append(
                f"the file {printable(entry['name'])[:MOST_SHOWN]} stays in the sandbox: {printable(str(error))}"
            )


async def pull(workspace: Workspace, sandbox: RunnerClient, reply: Reply) -> tuple[Artifact, ...]:
    """Store new and changed files of a block on the host.

    Args:
        workspace: The host's folder; it receives the notes on files that were not stored.
        sandbox: Where the files are.
        reply: The block's reply with the list of changed files and the content of small ones.

    Returns:
        The files, also those of blocks that were cancelled before; one that could not be stored has a note with the reason.
    """
    missed, sandbox.undelivered = sandbox.undelivered, {}
    try:
        return await _pull(workspace, sandbox, reply, missed)
    except asyncio.CancelledError:
        sandbox.add_undelivered(missed.values())
        raise


async def _pull(
    workspace: Workspace, sandbox: RunnerClient, reply: Reply, missed: dict[str, dict[str, Any]]
) -> tuple[Artifact, ...]:
    pulled = await in_thread(_begin_pull, workspace, reply, missed)
    while pulled.inline:
        await in_thread(_store_some, workspace, pulled)
    while pulled.elsewhere:
        entries = _batch(pulled.elsewhere[:MOVED_AT_ONCE], lambda entry: int(entry["size"]))
        await _fetch(workspace, sandbox, pulled, entries)
        del pulled.elsewhere[: len(entries)]
    return pulled.result if pulled.result is not None else await in_thread(_finish, workspace, pulled)


def _begin_pull(workspace: Workspace, reply: Reply, missed: dict[str, dict[str, Any]]) -> _Pulled:
    """Sort the changed files, and store those whose content is in the reply, which usually are all."""
    pulled = _Pulled()
    offset = 0
    told: dict[str, bool] = {}
    entries = checked_entries(reply.message.get("files", []))
    late = missed.keys() - {entry["name"] for entry in entries}
    for entry in (*entries, *({**missed[name], "late": True} for name in sorted(late))):
        inline = entry.get("inline")
        content: bytes | None = None
        if inline is not None:
            content = reply.data[offset : offset + inline]
            offset += inline
        name = workspace.refused(entry["name"])
        if name is not None:
            workspace.stays_apart(entry["name"])
            told.setdefault(name, workspace.reported(name))
            content = b""
        if name is not None and told[name]:
            continue
        if content is None:
            pulled.elsewhere.append(entry)
        else:
            pulled.inline.append((entry, content))
    _store_some(workspace, pulled)
    if not pulled.inline and not pulled.elsewhere:
        pulled.result = _finish(workspace, pulled)
    return pulled


def _store_some(workspace: Workspace, pulled: _Pulled) -> None:
    """Store some of the files whose content is in memory, as many as one call may store."""
    _store_all(workspace, pulled, pulled.inline[:FILES_AT_ONCE])
    del pulled.inline[:FILES_AT_ONCE]


def _store_all(workspace: Workspace, pulled: _Pulled, entries: Iterable[tuple[dict[str, Any], bytes]]) -> None:
    for entry, content in entries:
        pulled.attempt(entry, partial(workspace.store, entry["name"], entry["mode"], [content]))


async def _fetch(
    workspace: Workspace, sandbox: RunnerClient, pulled: _Pulled, entries: Sequence[dict[str, Any]]
) -> None:
    """Get the content of some files and store them."""
    small = [entry for entry in entries if entry["size"] < CHUNK]
    answers = await asyncio.gather(*(_first_chunk(sandbox, entry["name"]) for entry in small), return_exceptions=True)
    whole = []
    large = [entry for entry in entries if entry["size"] >= CHUNK]
    for entry, answer in zip(small, answers, strict=True):
        if isinstance(answer, SandboxFileError):
            pulled.refuse(entry, answer)
        elif isinstance(answer, BaseException):
            raise answer
        elif len(answer) < CHUNK:
            whole.append((entry, answer))
        else:  # it has grown since
            large.append(entry)
    if whole:
        await in_thread(_store_all, workspace, pulled, whole)
    for entry in large:
        try:
            path = await stream(workspace, sandbox, entry["name"], entry["name"], entry["mode"])
            pulled.artifacts.append(artifact(entry, path=path))
        except SandboxFileError as error:
            pulled.refuse(entry, error)


async def _first_chunk(sandbox: RunnerClient, name: str) -> bytes:
    async with aclosing(sandbox.read_file(name)) as pieces:
        chunk, _ = await anext(pieces)
        return chunk


async def stream(workspace: Workspace, sandbox: RunnerClient, name: str, target: str, mode: int) -> Path:
    """Copy a file of the sandbox to the host, piece by piece.

    Args:
        workspace: The host's folder.
        sandbox: Where it is.
        name: Its path relative to the workspace.
        target: Its path on the host, relative to the folder.
        mode: Its permissions.

    Returns:
        The file on the host.

    Raises:
        SandboxFileError: It does not exist, is not a regular file, or is too large, or the host can't write it.
    """
    # Not the thread's result: that is lost if this call is cancelled.
    begun: list[Incoming] = []
    waiting: list[bytes] = []
    try:
        async for chunk, now in sandbox.read_file(name):
            if now > workspace.max_file_bytes:
                most = workspace.max_file_bytes
                raise SandboxFileError(errno.EFBIG, f"it has {now:,} bytes; at most {most:,} are copied", name)
            if not begun:
                await in_thread(_begin, begun, workspace, target, mode, now)
            waiting.append(chunk)
            if len(waiting) == WRITTEN_AT_ONCE:
                await in_thread(begun[0].write, *waiting)
                waiting = []
        await in_thread(begun[0].write, *waiting)
        return await in_thread(begun[0].commit)
    finally:
        for incoming in begun:
            await in_thread(incoming.abandon)


def _begin(begun: list[Incoming], workspace: Workspace, *about: Any) -> None:
    begun.append(workspace.begin(*about))


def _finish(workspace: Workspace, pulled: _Pulled) -> tuple[Artifact, ...]:
    """Report the files that were not stored, in the log and in the result, with a limited number of sentences."""
    listed: list[Artifact] = []
    for refused in pulled.refused.values():
        for entry, _ in refused.entries:
            workspace.stays_apart(entry["name"])
        if refused.is_protected and workspace.reported(refused.reason):
            continue
        count, shown = len(refused.entries), printable(refused.entries[0][0]["name"])[:MOST_SHOWN]
        others = f" (and {count - 1:,} more)" if count > 1 else ""
        for text in refused.texts[:1] if count > MOST_REFUSED or refused.is_protected else refused.texts:
            logger.warning("%s%s", text, others if count > MOST_REFUSED or refused.is_protected else "")
        room = max(0, MOST_LISTED - len(listed))
        if count > room or refused.is_protected or refused.number == errno.EDQUOT:
            workspace.note(f"Not copied to work_dir: {shown}{others}: {refused.reason}")
        # A model reads it, and must not see paths of the host.
        listed += [
            artifact({**entry, "name": printable(entry["name"])}, note=f"not copied: {reason}")
            for entry, reason in refused.entries[:room]
        ]
    return tuple(sorted([*pulled.artifacts, *listed], key=lambda item: item.name))


def keep_code(kept: list[Kept], place: Workspace | Path | None, filename: str | None, code: bytes | None) -> None:
    """Keep the code of a block on the host, as AutoGen's executors do.

    Args:
        kept: The file is appended to it, or None, or a future if it is being written.
        place: The host's folder; a path if it is mounted, because the sandbox then writes the file itself.
        filename: Name of the file; None if the code has none.
        code: The code; None to remove such a file of an earlier run.
    """
    if place is None or filename is None:
        kept.append(None)
    elif isinstance(place, Path):
        kept.append(str(place / filename))
    elif code is None or (len(code) <= QUICK_BYTES and place.holds(filename, code)):
        if code is None:
            place.remove(filename)
        kept.append(str(place.root / filename))
    else:
        kept.append(asyncio.get_running_loop().run_in_executor(None, _keep_code, place, filename, code))


def _keep_code(workspace: Workspace, filename: str, code: bytes) -> str | None:
    name = workspace.refused(filename)
    if name is not None:
        if not workspace.reported(name):
            workspace.note(f"Not copied to work_dir: {printable(filename)}: {left_out(name)}")
        return None
    try:
        return str(workspace.store(filename, 0o644, [code]))
    except SandboxError as error:
        logger.warning("the code was not kept on the host: %s", printable(str(error)))
        return None
