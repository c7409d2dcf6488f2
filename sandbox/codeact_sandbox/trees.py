"""Operations on files and folders, which a process of the sandbox's user does: methods of `AsyncSandbox`."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import secrets
import shutil
import struct
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from codeact_sandbox.commands import HasCommands, Input, pieces_of, prepared, run_process
from codeact_sandbox.files import sync
from codeact_sandbox.files.tar_receiver import TarReceiver
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.processes import Command
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.runner.worker import trees
from codeact_sandbox.types.errors import SandboxFileError, SandboxStartError
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.limits import parse_names, parse_size

FileType = Literal["file", "folder", "link", "other"]
MAX_LISTED = 20_000
MAX_ANSWER_BYTES = 16 * 1024**2
MAX_ANSWER_PARTS = 8 * MAX_LISTED  # lists, and values of them
MAX_FAILURE_BYTES = 64 * 1024
MAX_ENTRIES = 200_000
MAX_BYTES = 16 * 1024**3
HEADERS = 256 * 1024**2  # what a tar file may have beside its files' content
TRANSFER_TIMEOUT_S = 600.0  # for whole folders; other operations may take as long as a block
TOOL_FILES_AT_ONCE = 8
_LIMITS: dict[str, Any] = {"most_entries": MAX_ENTRIES, "most_bytes": MAX_BYTES}
Take = Callable[[bytes], Awaitable[object]]


@dataclass(frozen=True)
class FileInfo:
    """A file or folder in a sandbox.

    Args:
        path: Its path, as it was asked for.
        type: What it is; links are not followed.
        size: Bytes of a file.
        mode: Permission bits.
        modified: When its content was changed last, in seconds since 1970.
    """

    path: str
    type: FileType
    size: int
    mode: int
    modified: float


@dataclass(frozen=True)
class GrepMatch:
    """A line that a pattern was found in.

    Args:
        path: The file.
        line_number: From 1.
        line: The line, at most 2,000 characters of it.
    """

    path: str
    line_number: int
    line: str


async def ls(sandbox: HasCommands, path: str = ".") -> list[FileInfo]:
    """List what is in a folder, in the order of names; paths are relative to the workspace, or absolute inside the sandbox.

    Args:
        path: The folder. Default: the workspace.

    Raises:
        SandboxFileError: It is not there or no folder, or there are more than 20,000 entries.
    """
    return [_info(each) for each in await _search(sandbox, "ls", path, most=MAX_LISTED)]


async def stat(sandbox: HasCommands, path: str) -> FileInfo:
    """Return what a path is; links are not followed.

    Args:
        path: As for `ls`.

    Raises:
        SandboxFileError: It is not there.
    """
    return _info(await _answer(sandbox, "stat", path))


async def glob(sandbox: HasCommands, pattern: str, path: str = ".") -> list[str]:
    """Return the paths below a folder that match a pattern.

    Args:
        pattern: Compared with the path from that folder: `*.csv`, `src/**/*.py`, where `**` is any number of folders.
        path: The folder. Default: the workspace.

    Raises:
        SandboxFileError: It is not there, or more than 20,000 paths match.
    """
    return [str(each) for each in await _search(sandbox, "glob", path, pattern=pattern, most=MAX_LISTED)]


async def grep(
    sandbox: HasCommands,
    pattern: str,
    path: str = ".",
    *,
    glob: str | None = None,
    ignore_case: bool = False,
    literal: bool = False,
    max_matches: int = 1000,
) -> list[GrepMatch]:
    """Return the lines of text files that contain a pattern; of a binary file, those before its first null byte.

    Args:
        pattern: A regular expression of Python.
        path: A file, or a folder with all below it. Default: the workspace.
        glob: Only files whose name matches this. Default: all.
        ignore_case: Whether upper and lower case are the same. Default: no.
        literal: Whether the pattern is text to find as it is. Default: no.
        max_matches: Where the search ends.

    Raises:
        SandboxFileError: The path is not there, the pattern is wrong, or the search took longer than a block may.
    """
    more: dict[str, Any] = {"pattern": pattern, "files": glob or "*", "ignore_case": ignore_case, "literal": literal}
    answer = await _answer(sandbox, "grep", path, most=max_matches, **more)
    return [GrepMatch(str(name), int(number), str(line)) for name, number, line in answer["found"]]


async def mkdir(sandbox: HasCommands, path: str) -> None:
    """Make a folder and those above it; nothing happens if it is there.

    Args:
        path: As for `ls`.

    Raises:
        SandboxFileError: It can't be made.
    """
    await _answer(sandbox, "mkdir", path)


async def remove(sandbox: HasCommands, path: str, *, recursive: bool = False) -> None:
    """Remove a file, a link, or an empty folder.

    Args:
        path: As for `ls`.
        recursive: Also remove what is in a folder. Default: no.

    Raises:
        SandboxFileError: It is not there, can't be removed, is not empty, or the workspace is in it.
    """
    await _answer(sandbox, "remove", path, recursive=recursive)


async def edit(sandbox: HasCommands, path: str, old: str, new: str, *, replace_all: bool = False) -> int:
    """Replace text in a file; who reads it meanwhile sees the file before or after.

    Args:
        path: As for `ls`.
        old: The exact text to replace, which must be there once.
        new: What takes its place.
        replace_all: Replace it wherever it is. Default: no.

    Returns:
        How often it was replaced.

    Raises:
        ValueError: The old text is empty.
        SandboxFileError: The text is not there or there several times, or the file can't be changed.
    """
    if not old:
        raise ValueError("edit() needs the text to replace: old is empty")
    return int(await _answer(sandbox, "edit", path, old=old, new=new, everywhere=replace_all))


async def read(sandbox: HasCommands, path: str, offset: int, size: int | None, max_bytes: int) -> bytes:
    """Return a part of any file; at most `max_bytes`."""
    content = bytearray()

    async def take(data: bytes) -> None:
        content.extend(data)
        if len(content) > max_bytes:
            raise SandboxFileError(errno.EFBIG, f"more than {max_bytes:,} bytes are not read into memory", path)

    await _operate(sandbox, "read", path, take=take, offset=offset, size=size)
    return bytes(content)


async def write(sandbox: HasCommands, path: str, content: Input) -> None:
    """Write any file, and make the folders above it."""
    await _answer(sandbox, "write", path, content=content)


# Whole folders


async def put_folder(sandbox: HasCommands, source: Path, path: str) -> None:
    """Copy a folder of the host into the sandbox."""
    await _answer(
        sandbox, "unpack", path, content=in_threads(_packed(source)), timeout=TRANSFER_TIMEOUT_S, compressed=False
    )


def _packed(source: Path) -> Generator[bytes]:
    with host_errors(source):
        yield from cast("Callable[..., Generator[bytes]]", trees.tar_of)(str(source), check_link=_check_link, **_LIMITS)


def _check_link(name: str, target: str) -> None:
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if target.startswith("/") or inside.split("/")[0] == "..":
        raise SandboxFileError(errno.EINVAL, f"the link {printable(name)} leads out of the folder: remove it", name)


async def get_folder(sandbox: HasCommands, path: str, target: Path) -> Path:
    """Copy the files and folders of a folder in the sandbox to the host, and raise an error that names what was left out."""
    folder = Workspace(
        target, max_files=MAX_ENTRIES, max_file_bytes=MAX_BYTES, max_total_bytes=MAX_BYTES, counted=False
    )
    await in_thread(folder.prepare)
    # What a process of the sandbox sends need not be what it has.
    folder.limit_written((await in_thread(shutil.disk_usage, target)).free // 2)
    receiver = TarReceiver(folder, MAX_ENTRIES)
    take = partial(in_thread, receiver.feed)
    try:
        await _operate(sandbox, "pack", path, take=take, timeout=TRANSFER_TIMEOUT_S, compressed=False, **_LIMITS)
    finally:
        await in_thread(receiver.close)
        await in_thread(folder.close)
    if not receiver.complete:
        raise SandboxFileError(errno.EIO, "the sandbox sent only a part of the folder", path)
    if receiver.left_out:
        left, count = "; ".join(receiver.left_out), receiver.left_out_count
        raise SandboxFileError(errno.EPERM, f"{count:,} entries were not copied, all others were: {left}", path)
    return target


async def snapshot(sandbox: HasCommands, target: Path | str, *, exclude: Sequence[str] = ()) -> Path:
    """Write the workspace into one compressed tar file on the host: files, folders and links, with modes and times.

    It can be restored in any sandbox, and by `tar`.

    Args:
        target: The file, which is replaced if it exists. `Sandbox(snapshot=target)` starts with it.
        exclude: Paths relative to the workspace that are left out, with what is below them. Default: none.

    Returns:
        The file.

    Raises:
        SandboxFileError: The workspace can't be read, is too large, or the host can't write the file.
    """
    target = Path(target)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with host_errors(target), await in_thread(part.open, "xb") as file:
            more: dict[str, Any] = {"exclude": parse_names("exclude", exclude), "compressed": True, **_LIMITS}
            take = partial(in_thread, file.write)
            await _operate(sandbox, "pack", ".", take=take, timeout=TRANSFER_TIMEOUT_S, **more)
            await in_thread(os.fsync, file.fileno())
            os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


async def restore(sandbox: HasCommands, snapshot: Path) -> None:
    """Fill the workspace of a sandbox that starts with what `snapshot` has written."""
    try:
        await unpack(sandbox, in_threads(_file(snapshot)))
    except SandboxFileError as error:
        raise SandboxStartError(f"the snapshot {snapshot} could not be restored: {error}") from error


async def unpack(sandbox: HasCommands, content: Input, *, compressed: bool = True) -> None:
    """Fill the workspace with what a tar file contains, which may be compressed as those of `snapshot` are."""
    await _answer(sandbox, "unpack", ".", content=content, timeout=TRANSFER_TIMEOUT_S, compressed=compressed)


async def save(sandbox: HasCommands, file: BinaryIO) -> None:
    """Write the workspace as a tar file, for `put_back`.

    Files with holes can be larger than all that the workspace can hold; code in the sandbox could also send more than it has.
    """
    size, written = parse_size(sandbox.options.limits.resolved().workspace), 0

    async def take(data: bytes) -> None:
        nonlocal written
        written += len(data)
        if written > size + HEADERS:
            raise SandboxFileError(errno.EFBIG, "its files are larger than the workspace", ".")
        await in_thread(file.write, data)

    limits = _LIMITS | {"most_bytes": size}
    await _operate(sandbox, "pack", ".", take=take, timeout=TRANSFER_TIMEOUT_S, compressed=False, **limits)


async def put_back(sandbox: HasCommands, file: BinaryIO) -> None:
    """Make the workspace contain what `save` has written, and nothing else; the host's folder is left alone."""
    content = in_threads(_chunks(file))
    await _answer(sandbox, "unpack", ".", content=content, timeout=TRANSFER_TIMEOUT_S, compressed=False, replace=True)


def _chunks(file: BinaryIO) -> Generator[bytes]:
    file.seek(0)
    while data := file.read(trees.CHUNK):
        yield data


def _file(path: Path) -> Generator[bytes]:
    with host_errors(path), path.open("rb") as file:
        yield from _chunks(file)


@contextmanager
def host_errors(path: Path) -> Iterator[None]:
    """Convert an error with a file of the host."""
    try:
        yield
    except SandboxFileError:
        raise
    except OSError as error:
        raise SandboxFileError(error.errno, error.strerror, error.filename or str(path)) from error


# Requests


async def _search(sandbox: HasCommands, op: str, path: str, **arguments: Any) -> list[Any]:
    answer = await _answer(sandbox, op, path, **arguments)
    if answer["cut"]:
        most = f"more than {MAX_LISTED:,} entries, or too long names"
        raise SandboxFileError(errno.E2BIG, f"there are {most}: choose a folder below it, or a narrower pattern", path)
    return cast("list[Any]", answer["found"])


async def _answer(
    sandbox: HasCommands, op: str, path: str, *, content: Input = b"", timeout: float | None = None, **arguments: Any
) -> Any:
    answer = bytearray()

    async def take(data: bytes) -> None:
        answer.extend(data)
        if len(answer) > MAX_ANSWER_BYTES:
            raise SandboxFileError(errno.E2BIG, "the sandbox sent too long an answer", path)

    await _operate(sandbox, op, path, content=content, take=take, timeout=timeout, **arguments)
    try:
        return await in_thread(_parsed, answer)
    except (ValueError, RecursionError) as error:
        raise SandboxFileError(errno.EIO, "the sandbox sent an unreadable answer", path) from error


def _parsed(answer: bytearray) -> Any:
    """Parse an answer, unless it has so many parts that it would be much larger in memory."""
    unescaped = answer.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') <= MAX_ANSWER_PARTS:
        structure = b"".join(unescaped.split(b'"')[::2])
        if sum(map(structure.count, (b"[", b"{", b","))) <= MAX_ANSWER_PARTS:
            return json.loads(answer)
    raise ValueError("an answer with too many parts")


async def _operate(sandbox: HasCommands, op: str, path: str, *, timeout: float | None = None, **arguments: Any) -> None:
    client, workspace = await prepared(sandbox), sandbox._folder.workspace
    try:
        await _operate_in(client, op, path, timeout=timeout or sandbox.timeout, **arguments)
    finally:
        changes = op in ("write", "edit", "mkdir", "unpack") and "replace" not in arguments
        if changes and workspace is not None and client.alive:
            await sync.pull_changed(workspace, client)


async def _operate_in(
    client: RunnerClient,
    op: str,
    path: str,
    *,
    take: Take,
    timeout: float,
    content: Input = b"",
    **arguments: Any,
) -> None:
    if not path or "\0" in path:
        raise ValueError("a path must not be empty or contain a NUL character")
    request = json.dumps({"op": op, "path": path, **arguments}).encode()
    failure = bytearray()

    async def stdin() -> AsyncGenerator[bytes]:
        yield struct.pack("!I", len(request)) + request
        async with aclosing(pieces_of(content)) as pieces:
            async for piece in pieces:
                yield piece

    async def on_output(stream: str, data: bytes) -> None:
        if stream == "stdout":
            await take(data)
        else:
            failure.extend(data[: MAX_FAILURE_BYTES - len(failure)])

    command = Command([trees.COMMAND], stdin=True, timeout=timeout)
    done = (await run_process(client, command, stdin(), on_output, timeout)).end()
    if done.timed_out:
        raise SandboxFileError(errno.ETIMEDOUT, f"it took longer than {done.duration_s:.0f} s", path)
    if done.exit_code != 0:
        raise _error_of(bytes(failure), path)


async def check(client: RunnerClient, paths: list[str]) -> list[int]:
    """Return for each path the number of the error with which the code can't read it, or 0."""
    answer = bytearray()

    async def take(data: bytes) -> None:
        answer.extend(data)

    await _operate_in(client, "check", ".", take=take, timeout=TRANSFER_TIMEOUT_S, paths=paths)
    found = _parsed(answer)
    if not isinstance(found, list) or len(found) != len(paths) or not all(isinstance(each, int) for each in found):
        raise SandboxFileError(errno.EIO, "the sandbox sent an unreadable answer", paths[0])
    return found


async def write_all(client: RunnerClient, path: str, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, which is made."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    more: dict[str, Any] = {"content": packed.getvalue(), "compressed": False}
    await _operate_in(client, "unpack", path, take=_ignore, timeout=TRANSFER_TIMEOUT_S, **more)


async def _ignore(_: bytes) -> None:
    """Ignore an answer that says nothing."""


class ToolFiles:
    """The files that calls of host tools exchange with the code: opened with the code's rights, not with the supervisor's."""

    def __init__(self, client: RunnerClient) -> None:
        self._client = client
        self._room = asyncio.Semaphore(TOOL_FILES_AT_ONCE)

    async def read(self, path: str, take: Take, most: int) -> None:
        """Read a file of at most so many bytes, which is nothing of the kernel's."""
        async with self._room:
            more: dict[str, Any] = {"offset": 0, "size": None, "most": most}
            await _operate_in(self._client, "read", path, take=take, timeout=TRANSFER_TIMEOUT_S, **more)

    async def write(self, path: str, content: Input) -> None:
        """Write a file, and make the folders above it."""
        async with self._room:
            await _operate_in(self._client, "write", path, take=_ignore, content=content, timeout=TRANSFER_TIMEOUT_S)


def _error_of(failure: bytes, path: str) -> SandboxFileError:
    try:
        said = json.loads(failure)
        return SandboxFileError(int(said["errno"]), printable(str(said["error"])[:1000]), path)
    except (ValueError, KeyError, TypeError, RecursionError):
        return SandboxFileError(errno.EIO, "the process that does it has ended", path)


def _info(found: Any) -> FileInfo:
    path, kind, size, mode, modified = found
    if kind not in ("file", "folder", "link", "other"):
        raise SandboxFileError(errno.EIO, "the sandbox sent an unreadable answer", str(path)[:200])
    return FileInfo(str(path), kind, int(size), int(mode), float(modified))
