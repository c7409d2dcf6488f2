"""The host folder that is kept in step with the sandbox's `/workspace`.

Files are added and changed on either side, and the last writer wins. Deletions travel in neither direction: what is
deleted on the host stays in the sandbox, and the other way round.

Only POSIX hosts (Linux, macOS): every access goes through descriptors of folders opened without following symbolic
links, which Windows does not offer. `Workspace.prepare` says so there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from autogen_codeact.executors.errors import SandboxFileError
from autogen_codeact.executors.filenames import PART_PREFIX, printable, safe_name
from autogen_codeact.executors.scan import FOLDER_FLAGS, Scan, Signature, Skipped, signature_of

__all__ = ["HostFile", "Skipped", "Workspace", "safe_name"]

CHUNK_BYTES = 256 * 1024
# Without O_NONBLOCK, opening a FIFO that took a file's place would wait for a writer.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

# File times move in ticks of up to 10 ms, so a second write of the same length can leave a fresh file's stat as it was.
# Small files that were fresh when they were sent are therefore told apart by their content, once.
_FRESH_NS = 50_000_000
_DIGEST_MAX_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class HostFile:
    """A regular file on the host that the sandbox does not have as it is now.

    Args:
        name: Path relative to the workspace, with forward slashes.
        size: Size in bytes when the folder was scanned.
        mode: 0o755 where somebody may execute it, else 0o644.
        path: The file on the host.
    """

    name: str
    size: int
    mode: int
    path: Path


@dataclass(slots=True)
class _Synced:
    signature: Signature
    digest: bytes | None  # only while the file may have changed without a new signature


class Workspace:
    """The host's side of the workspace. Not for several threads at once.

    Args:
        root: The folder on the host; `prepare` creates it.
        max_files: Files in the folder, more are neither sent nor stored.
        max_file_bytes: Size of one file in bytes, 100 MiB by default.
        max_total_bytes: Size of all files in bytes, 1 GiB by default.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_files: int = 10_000,
        max_file_bytes: int = 100 * 1024**2,
        max_total_bytes: int = 1024**3,
    ) -> None:
        self.root = Path(root)
        self.max_files = max_files
        self.max_file_bytes = max_file_bytes
        self.max_total_bytes = max_total_bytes
        self.skipped: list[Skipped] = []
        """What the last `outgoing` left out and had not reported before."""
        self._apart: set[str] = set()
        self._reported: set[Skipped] = set()
        self._synced: dict[str, _Synced] = {}
        self._scanned: dict[str, os.stat_result] = {}
        self._scanned_at_ns = 0
        self._digests: dict[str, bytes] = {}
        self._state: dict[str, Signature] = {}
        self._state_since = 0.0
        self._settled: tuple[tuple[str, Signature], ...] = ()
        self._sizes: dict[str, int] | None = None
        self._total = 0

    def prepare(self) -> None:
        """Create the folder and see that it can be written.

        Raises:
            SandboxFileError: It can't be; the message says what to do.
        """
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise _error(errno.ENOTSUP, "", "A work_dir needs Linux or macOS; on Windows, run this inside WSL 2.")
        task = f"The work_dir {self.root} can't be used"
        with self._explained(task):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except FileNotFoundError:
                raise _error(errno.ENOENT, task, _NO_PLACE) from None
        trial = PART_PREFIX + secrets.token_hex(8)
        with self._folder([], "write to") as folder, self._explained(f"The work_dir {self.root} can't be written"):
            os.close(os.open(trial, _CREATE_FLAGS, 0o600, dir_fd=folder))
            os.unlink(trial, dir_fd=folder)

    def outgoing(self) -> list[HostFile]:
        """Find the files that are new or changed since they were last in step; on the first call, all of them.

        Symbolic links are never followed. What is left out is named in `skipped`, once.

        Returns:
            The files to send, sorted by name.

        Raises:
            SandboxFileError: The folder is gone or can't be read.
        """
        self._scanned_at_ns = time.time_ns()
        scan = self._scan()
        self._scanned = scan.files
        self._digests.clear()
        if scan.complete:
            for name in self._synced.keys() - scan.files.keys():
                del self._synced[name]
        changed = [name for name, status in scan.files.items() if not self._in_step(name, status)]
        files = self._within_caps(scan, sorted(changed))
        self._note_state(scan, in_step=not changed)
        skipped = set(scan.skipped)
        self.skipped = [entry for entry in scan.skipped if entry not in self._reported]
        self._reported = skipped
        return files

    def unchanged(self) -> bool:
        """Whether it is certain that `outgoing` would find nothing; far cheaper than finding out by that. For any thread."""
        settled = self._settled
        try:
            for path, signature in settled:
                if signature_of(os.lstat(path)) != signature:
                    return False
        except OSError:
            return False
        return bool(settled)

    @property
    def in_sandbox(self) -> dict[str, Signature]:
        """The files that the sandbox has as the host has, or had, them."""
        return {name: entry.signature for name, entry in self._synced.items() if name not in self._apart}

    def stays_apart(self, name: str) -> None:
        """Take note that the sandbox has another file of this name than the host."""
        if name in self._synced:
            self._apart.add(name)

    def read(self, file: HostFile) -> Iterator[bytes]:
        """Read a file that `outgoing` found.

        Args:
            file: The file.

        Returns:
            Its content in chunks of at most 256 KiB, never more than `file.size` bytes in all; fewer where the file
            has shrunk. The next `outgoing` finds a file that was changed meanwhile.

        Raises:
            SandboxFileError: It is gone, can't be read, or is no longer a regular file reached without links.
        """
        name = self._checked(file.name)
        digest = blake2b(digest_size=16)
        small = file.size <= _DIGEST_MAX_BYTES
        for chunk in self._chunks(name, file.size):
            if small:
                digest.update(chunk)
            yield chunk
        if small:
            self._digests[name] = digest.digest()

    def mark_synced(self, names: Iterable[str]) -> None:
        """Remember that the sandbox has these files as the last `outgoing` saw them.

        Args:
            names: Names of files that were sent.
        """
        for name in names:
            status = self._scanned.get(name)
            if status is None:
                with suppress(OSError):
                    status = os.lstat(self.root / name)
            if status is not None:
                digest = self._digests.get(name) if self._fresh(status) else None
                self._apart.discard(name)
                self._synced[name] = _Synced(signature_of(status), digest)

    def store(self, name: str, mode: int, chunks: Iterable[bytes]) -> Path:
        """Write a file that the sandbox sent: whole or not at all, and only inside the folder.

        It is written under a temporary name and renamed, so a symbolic link in its place is replaced and the link's
        target stays as it is. A link in the place of a folder is refused.

        Args:
            name: Path relative to the workspace.
            mode: Permission bits in the sandbox; only whether anybody may execute it is kept.
            chunks: The content. What iterating raises is passed on.

        Returns:
            The file on the host.

        Raises:
            SandboxFileError: The name is unsafe, a cap is exceeded, or the host can't write; `errno` tells which.
        """
        name = self._checked(name)
        sizes = self._known_sizes()
        if name not in sizes and len(sizes) >= self.max_files:
            raise _error(errno.EDQUOT, f"Can't store `{name}` in {self.root}", f"{len(sizes)} files are there already.")
        *folders, leaf = name.split("/")
        with self._folder(folders, f"store `{name}` in", create=True) as folder:
            self._write(folder, leaf, name, mode, chunks)
        return self.root / name

    def _write(self, folder: int, leaf: str, name: str, mode: int, chunks: Iterable[bytes]) -> None:
        task = f"Can't store `{printable(name)}` in {self.root}"
        part = PART_PREFIX + secrets.token_hex(8)
        with self._explained(task):
            descriptor = os.open(part, _CREATE_FLAGS, 0o600, dir_fd=folder)
        try:
            try:
                digest = self._fill(descriptor, name, chunks, task)
                with self._explained(task):
                    os.fchmod(descriptor, _plain_mode(mode))
                    inode = os.fstat(descriptor).st_ino
            finally:
                with self._explained(task):  # network file systems report a full disk only here
                    os.close(descriptor)
            with self._explained(task):
                os.replace(part, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        with suppress(OSError):
            status = os.stat(leaf, dir_fd=folder, follow_symlinks=False)
            if status.st_ino == inode:  # else somebody on the host replaced it already
                self._total += status.st_size - self._known_sizes().get(name, 0)
                self._known_sizes()[name] = status.st_size
                self._apart.discard(name)
                self._synced[name] = _Synced(signature_of(status), digest)

    def _fill(self, descriptor: int, name: str, chunks: Iterable[bytes], task: str) -> bytes | None:
        room = self.max_total_bytes - self._total + self._known_sizes().get(name, 0)
        digest = blake2b(digest_size=16)
        written = 0
        for chunk in chunks:
            written += len(chunk)
            if written > self.max_file_bytes:
                raise _error(errno.EFBIG, task, f"it is larger than {self.max_file_bytes} bytes.")
            if written > room:
                raise _error(errno.EDQUOT, task, f"all files together would exceed {self.max_total_bytes} bytes.")
            if written <= _DIGEST_MAX_BYTES:
                digest.update(chunk)
            with self._explained(task):
                _write_all(descriptor, chunk)
        return digest.digest() if written <= _DIGEST_MAX_BYTES else None

    def _known_sizes(self) -> dict[str, int]:
        if self._sizes is None:
            files = self._scan().files
            self._sizes = {n: s.st_size for n, s in files.items() if s.st_size <= self.max_file_bytes}
            self._total = sum(self._sizes.values())
        return self._sizes

    def _scan(self) -> Scan:
        scan = Scan(self.max_files)
        with self._folder([], "list") as folder, self._explained(f"Can't list {self.root}"):
            scan.folder(folder, "", 1)
        return scan

    def _note_state(self, scan: Scan, *, in_step: bool) -> None:
        """Note the state of a folder in which there is nothing to send, once no change can hide behind the ticks of its times."""
        found = {**scan.folders, **scan.files} if in_step and scan.complete and scan.readable else {}
        state = {name: signature_of(status) for name, status in found.items()}
        now = time.monotonic()
        if state != self._state:
            self._state, self._state_since, self._settled = state, now, ()
        elif not self._settled and now - self._state_since > _FRESH_NS / 1e9:
            self._settled = tuple((f"{self.root}/{name}", signature) for name, signature in state.items())

    def _in_step(self, name: str, status: os.stat_result) -> bool:
        known = self._synced.get(name)
        if known is None or known.signature != signature_of(status):
            return False
        if known.digest is not None:
            if known.digest != self._digest(name, status.st_size):
                return False
            if not self._fresh(status):
                known.digest = None
        return True

    def _digest(self, name: str, size: int) -> bytes | None:
        digest = blake2b(digest_size=16)
        try:
            for chunk in self._chunks(name, size):
                digest.update(chunk)
        except SandboxFileError:
            return None
        return digest.digest()

    def _fresh(self, status: os.stat_result) -> bool:
        return self._scanned_at_ns - max(status.st_mtime_ns, status.st_ctime_ns) < _FRESH_NS

    def _within_caps(self, scan: Scan, changed: list[str]) -> list[HostFile]:
        """Build the list to send, and the sizes that `store` counts on."""
        sizes = {name: status.st_size for name, status in scan.files.items()}
        for name in changed:
            del sizes[name]
        total = sum(sizes.values())
        files = []
        for name in changed:
            status = scan.files[name]
            reason = self._refusal(name, status, total)
            if reason is not None:
                scan.skip(name, reason)
                continue
            total += status.st_size
            sizes[name] = status.st_size
            files.append(HostFile(name, status.st_size, _plain_mode(status.st_mode), self.root / name))
        self._sizes, self._total = sizes, total
        return files

    def _refusal(self, name: str, status: os.stat_result, total: int) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file."
        if status.st_size > self.max_file_bytes:
            return f"is {status.st_size} bytes large; at most {self.max_file_bytes} are sent."
        if total + status.st_size > self.max_total_bytes:
            return f"would bring all files together over {self.max_total_bytes} bytes."
        try:
            safe_name(name)
        except ValueError as error:
            return f"has a name that can't be sent. {error}"
        return None if os.access(self.root / name, os.R_OK) else "can't be read by this user."

    def _chunks(self, name: str, size: int) -> Iterator[bytes]:
        *folders, leaf = name.split("/")
        task = f"Can't read `{printable(name)}` in {self.root}"
        with self._folder(folders, f"read `{printable(name)}` in") as folder, self._explained(task):
            descriptor = os.open(leaf, _READ_FLAGS, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _error(errno.EINVAL, task, "it is not a regular file.")
            while size > 0:
                with self._explained(task):
                    chunk = os.read(descriptor, min(CHUNK_BYTES, size))
                if not chunk:
                    return
                size -= len(chunk)
                yield chunk
        finally:
            os.close(descriptor)

    def _checked(self, name: str) -> str:
        try:
            return safe_name(name)
        except ValueError as error:
            raise _error(errno.EINVAL, "", str(error)) from None

    @contextmanager
    def _folder(self, parts: list[str], doing: str, *, create: bool = False) -> Iterator[int]:
        """Open a folder step by step without following links; folders made here vanish again if the caller fails."""
        opened: list[int] = []
        made: list[tuple[int, str]] = []
        try:
            with self._explained(f"Can't {doing} {self.root}"):
                opened.append(os.open(self.root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)))
                for part in parts:
                    if create and _make_folder(part, opened[-1]):
                        made.append((opened[-1], part))
                    opened.append(os.open(part, FOLDER_FLAGS, dir_fd=opened[-1]))
            yield opened[-1]
        except BaseException:
            for parent, part in reversed(made):
                with suppress(OSError):
                    os.rmdir(part, dir_fd=parent)
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)

    @contextmanager
    def _explained(self, task: str) -> Iterator[None]:
        try:
            yield
        except SandboxFileError:
            raise
        except OSError as error:
            raise _error(error.errno, task, _advice(error)) from error


def _plain_mode(mode: int) -> int:
    return 0o755 if mode & 0o111 else 0o644


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folder(name: str, parent: int) -> bool:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _error(number: int | None, task: str, reason: str) -> SandboxFileError:
    error = SandboxFileError(f"{task}: {reason}" if task else reason)
    # Set apart from the arguments: OSError would print it as "[Errno 28]" in front of the sentence.
    error.errno = number
    error.reason = reason
    return error


_DISK_FULL = "the host's disk is full. Free some space, or use a work_dir on another disk."
_FORBIDDEN = "this user has no permission. Change the owner or mode, or use another work_dir."
_NO_PLACE = "it does not exist and can't be created there. Use another folder."
_NO_FOLDER = "a symbolic link or a file is where a folder should be. Use another name, or remove it."
_ADVICE = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: "the file system is read-only. Use a work_dir on another one.",
    errno.ELOOP: _NO_FOLDER,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "there is a folder of that name on the host. Use another name, or remove it.",
    errno.ENOENT: "it no longer exists on the host. Create it again, or start again.",
}


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, f"{error.strerror or error}.")
