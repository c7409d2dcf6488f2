"""A folder of a sandbox on its way to the host: a tar file that sandboxed code may have made."""

from __future__ import annotations

import errno
import tarfile
from collections.abc import Generator

from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.runner.worker.trees import BLOCK, CHUNK
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import MAX_NAME_BYTES, printable, safe_name
from codeact_sandbox.types.protected_names import not_written_back

MAX_LEFT_OUT = 8
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class TarReceiver:
    """Stores the regular files and folders of a tar file, which arrives in pieces; for threads.

    Not by `tarfile`, which would follow what the file says about sizes, types and names, and keep much of it in memory.
    """

    def __init__(self, target: Workspace, most_entries: int) -> None:
        self.complete = False  # whether the end was there
        self.left_out: list[str] = []
        """Why entries were not stored: links, and names that are not safe here; the first few."""
        self.left_out_count = 0
        self._target = target
        self._room = most_entries
        self._waiting = bytearray()
        self._steps = self._receive()
        self._needed = next(self._steps)

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._waiting += data
        start = 0
        while not self.complete and len(self._waiting) - start >= self._needed:
            piece = bytes(self._waiting[start : start + self._needed])
            start += self._needed
            try:
                self._needed = self._steps.send(piece)
            except StopIteration:
                self.complete = True
        del self._waiting[:start]

    def close(self) -> None:
        """Remove a file that is not complete; repeated calls are harmless."""
        self._steps.close()

    def _receive(self) -> Generator[int, bytes, None]:
        """Yield how many bytes are needed next, and store what is sent."""
        long_name: str | None = None
        while (block := (yield BLOCK)) != bytes(BLOCK):
            self._room -= 1
            if self._room < 0:
                raise SandboxFileError(errno.EFBIG, "the folder has too many files and folders")
            header = _parse(block)
            if header.type in _LONG:
                text = yield -(-header.size // BLOCK) * BLOCK
                if header.type == tarfile.GNUTYPE_LONGNAME:
                    long_name = text[: header.size].rstrip(b"\0").decode("utf-8", "surrogateescape")
                continue
            name, long_name = long_name or header.name, None
            if (reason := self._why_not(name, header)) is not None:
                self.left_out_count += 1
                if len(self.left_out) < MAX_LEFT_OUT:
                    self.left_out.append(f"{printable(name[:200])}: {reason}")
                yield from self._skip(header.size)
            elif header.isdir():
                self._target.make_folder(name)
            else:
                yield from self._store(name, header)

    def _why_not(self, name: str, header: tarfile.TarInfo) -> str | None:
        if header.issym():
            return "it is a symbolic link"
        try:
            part = self._target.protected.refused_part(safe_name(name.removesuffix("/")))
        except ValueError as error:
            return str(error)
        return not_written_back(part) if part is not None else None

    def _store(self, name: str, header: tarfile.TarInfo) -> Generator[int, bytes, None]:
        writer = self._target.begin(name, header.mode, header.size)
        try:
            left = header.size
            while left > 0:
                data = yield min(left, CHUNK)
                writer.write(data)
                left -= len(data)
            if header.size % BLOCK:
                yield -header.size % BLOCK
            self._target.commit(writer)
        finally:
            writer.abandon()

    @staticmethod
    def _skip(size: int) -> Generator[int, bytes, None]:
        left = -(-size // BLOCK) * BLOCK
        while left > 0:
            left -= len((yield min(left, CHUNK)))


def _parse(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise broken() from error
    is_content = header.type == tarfile.REGTYPE and header.size >= 0
    is_name = header.type in _LONG and 0 < header.size <= MAX_NAME_BYTES + BLOCK
    if not (is_content or is_name or ((header.isdir() or header.issym()) and header.size == 0)):
        raise broken()
    return header


def broken() -> SandboxFileError:
    """Return the error for a folder that does not come as it should."""
    return SandboxFileError(errno.EIO, "the sandbox sent a broken tar file")
