"""Files and folders of a sandbox: the methods of `AsyncSandbox` for them."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from codeact_sandbox.commands import HasCommands
from codeact_sandbox.files import sync
from codeact_sandbox.files.archives import LIMITS, file_chunks, host_errors, opened, packed, unpack
from codeact_sandbox.files.service import TRANSFER_TIMEOUT_S, unreadable
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.processes import Input
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import printable, safe_name
from codeact_sandbox.types.limits import parse_names
from codeact_sandbox.types.protected_names import ProtectedNames, not_written_back

FileType = Literal["file", "folder", "link", "other"]
MAX_LISTED = 20_000
MAX_BYTES = 16 * 1024**3
MAX_READ_BYTES = 256 * 1024**2
MAX_SHOWN = 8


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


class FileOperations(HasCommands):
    """The methods for files and folders; paths are relative to the workspace, or absolute inside the sandbox."""

    async def put_file(self, source: Path | str, name: str | None = None) -> str | None:
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
        name = safe_name(name if name is not None else source.name)
        return await self._write(name, in_threads(file_chunks(source)))

    async def put(self, source: Path | str, name: str | None = None) -> None:
        """Copy a file or a folder from the host into the sandbox.

        Args:
            source: The file or folder on the host. Links in a folder are kept; those that lead out
                of it are an error.
            name: Its path relative to the workspace; of a folder, also absolute. Default: its own name.

        Raises:
            ValueError: The name of a file could leave the workspace.
            SandboxFileError: It can't be read, or the sandbox can't store it.
        """
        source = Path(source)
        if source.is_dir():
            content = in_threads(packed(source))
            path = name if name is not None else source.resolve().name
            await unpack(self, content, path, compressed=False)
        else:
            await self.put_file(source, name)

    async def get_file(self, name: str, target: Path | str) -> Path:
        """Copy a file from the workspace to the host.

        Args:
            name: Its path relative to the workspace.
            target: The file on the host; it is replaced if it exists.

        Returns:
            The file on the host.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It does not exist, is not a regular file, or is too large, or the host
                can't write it.
        """
        target = Path(target)
        # A sandbox's limits do not apply to the target's folder, and the user has chosen the name.
        folder = Workspace(target.parent, counted=False, protected=ProtectedNames(["*"]))
        await in_thread(folder.prepare)
        return await sync.copy_out(folder, await self.ready(), safe_name(name), target.name, 0o644)

    async def get(self, name: str, target: Path | str) -> Path:
        """Copy a file or a folder from the workspace to the host.

        Args:
            name: Its path relative to the workspace; "." is the workspace.
            target: The file on the host, which is replaced if it exists; or the folder, which is
                made, or filled up.

        Returns:
            The file or folder on the host.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It does not exist or is too large, or the host can't write it. Of a
                folder, links are left out, and protected names (`.git` and the like), which this
                error names after all else has been copied.
        """
        if name != ".":
            try:
                return await self.get_file(name, target)
            except SandboxFileError as error:
                if error.errno != errno.EINVAL or (await self.stat(name)).type != "folder":
                    raise
        return await self._get_folder(name, Path(target))

    async def _get_folder(self, path: str, target: Path) -> Path:
        client = await self.ready()
        entries = await client.requests.list_folder(path)
        folder = Workspace(
            target,
            max_files=MAX_LISTED,
            max_file_bytes=MAX_BYTES,
            max_total_bytes=MAX_BYTES,
            counted=False,
        )
        await in_thread(folder.prepare)
        # What the sandbox sends need not be what it has.
        folder.limit_written((await in_thread(shutil.disk_usage, target)).free // 2)
        copied = await sync.pull_entries(folder, client, entries, source=path)
        if left := [f"{each.name}: {each.note}" for each in copied if each.note is not None]:
            shown = "; ".join(left[:MAX_SHOWN])
            reason = f"not all was copied: {shown}{'; …' * (len(left) > MAX_SHOWN)}"
            raise SandboxFileError(errno.EPERM, reason, path)
        return target

    async def write(self, name: str, data: bytes | str) -> str | None:
        """Write a file into the sandbox and into `work_dir`, with the folders above it; text is encoded as UTF-8.

        A file that exists keeps its mode.

        Args:
            name: Its path relative to the workspace, or absolute.
            data: Its content.

        Returns:
            Why it is not in `work_dir`; None if it is, or lies outside the workspace.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: The sandbox can't store it.
        """
        path = name if name.startswith("/") else safe_name(name)
        return await self._write(path, data.encode() if isinstance(data, str) else data)

    async def _write(self, path: str, content: Input) -> str | None:
        async with opened(self) as service:
            await service.ask("write", path, content=content)
        client, workspace = self.client, self._folder.workspace
        if client is None or workspace is None:
            return None
        stored = await sync.pull_changed(workspace, client)
        shown = printable(path)
        workspace.forget_missing(path)  # not a file of a block
        if (part := workspace.protected.refused_part(path)) is not None:
            return not_written_back(part)
        return next((each.note for each in stored if each.name == shown), None)

    async def read(
        self,
        name: str,
        max_bytes: int = MAX_READ_BYTES,
        *,
        offset: int = 0,
        size: int | None = None,
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
        path, content = name if name.startswith("/") else safe_name(name), bytearray()

        async def take(data: bytes) -> None:
            content.extend(data)
            if len(content) > max_bytes:
                reason = f"more than {max_bytes:,} bytes are not read into memory"
                raise SandboxFileError(errno.EFBIG, reason, name)

        async with opened(self) as service:
            await service.operate("read", path, take=take, offset=offset, size=size)
        return bytes(content)

    async def list_files(self) -> list[str]:
        """List the regular files in the workspace."""
        return [entry["name"] for entry in await (await self.ready()).requests.list_files()]

    async def ls(self, path: str = ".") -> list[FileInfo]:
        """List what is in a folder, in the order of names; paths are relative to the workspace, or absolute inside the sandbox.

        Args:
            path: The folder. Default: the workspace.

        Raises:
            SandboxFileError: It is not there or no folder, or there are more than 20,000 entries.
        """
        return [_info(each) for each in await self._search("ls", path, most=MAX_LISTED)]

    async def stat(self, path: str) -> FileInfo:
        """Return what a path is; links are not followed.

        Args:
            path: As for `ls`.

        Raises:
            SandboxFileError: It is not there.
        """
        return _info(await self._ask("stat", path))

    async def glob(self, pattern: str, path: str = ".") -> list[str]:
        """Return the paths below a folder that match a pattern.

        Args:
            pattern: Compared with the path from that folder: `*.csv`, `src/**/*.py`, where `**` is any number of folders.
            path: The folder. Default: the workspace.

        Raises:
            SandboxFileError: It is not there, or more than 20,000 paths match.
        """
        return [str(each) for each in await self._search("glob", path, pattern=pattern, most=MAX_LISTED)]

    async def grep(
        self,
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
        more: dict[str, Any] = {
            "pattern": pattern,
            "files": glob or "*",
            "ignore_case": ignore_case,
            "literal": literal,
        }
        answer = await self._ask("grep", path, most=max_matches, **more)
        return [GrepMatch(str(name), int(number), str(line)) for name, number, line in answer["found"]]

    async def mkdir(self, path: str) -> None:
        """Make a folder and those above it; nothing happens if it is there.

        Args:
            path: As for `ls`.

        Raises:
            SandboxFileError: It can't be made.
        """
        await self._ask("mkdir", path, changes=True)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link, or an empty folder.

        Args:
            path: As for `ls`.
            recursive: Also remove what is in a folder. Default: no.

        Raises:
            SandboxFileError: It is not there, can't be removed, is not empty, or the workspace is in it.
        """
        await self._ask("remove", path, recursive=recursive)

    async def edit(self, path: str, old: str, new: str, *, replace_all: bool = False) -> int:
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
        texts: dict[str, Any] = {"old": old, "new": new, "everywhere": replace_all}
        return int(await self._ask("edit", path, changes=True, **texts))

    async def snapshot(self, target: Path | str, *, exclude: Sequence[str] = ()) -> Path:
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
                more = {"exclude": parse_names("exclude", exclude), "compressed": True, **LIMITS}
                take = partial(in_thread, file.write)
                async with opened(self) as service:
                    await service.operate("pack", ".", take=take, timeout=TRANSFER_TIMEOUT_S, **more)
                await in_thread(os.fsync, file.fileno())
                os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    async def _search(self, op: str, path: str, **arguments: Any) -> list[Any]:
        answer = await self._ask(op, path, **arguments)
        if answer["cut"]:
            most = f"more than {MAX_LISTED:,} entries, or too long names"
            advice = "choose a folder below it, or a narrower pattern"
            raise SandboxFileError(errno.E2BIG, f"there are {most}: {advice}", path)
        return cast("list[Any]", answer["found"])

    async def _ask(self, op: str, path: str, *, changes: bool = False, **arguments: Any) -> Any:
        async with opened(self, changes=changes) as service:
            return await service.ask(op, path, **arguments)


def _info(found: Any) -> FileInfo:
    path, kind, size, mode, modified = found
    if kind not in ("file", "folder", "link", "other"):
        raise unreadable(str(path)[:200])
    return FileInfo(str(path), kind, int(size), int(mode), float(modified))
