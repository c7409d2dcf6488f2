"""The host folder whose files are exchanged with the sandbox's `/workspace`.

Files are added and changed on either side, and the last writer wins. Deletions are not transferred: a file deleted on
one side stays on the other.

Only POSIX hosts (Linux, macOS): every access goes through descriptors of folders opened without following symbolic
links, which Windows does not offer. `Workspace.prepare` says so there.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from autogen_codeact.sandbox.errors import SandboxDied, SandboxFileError
from autogen_codeact.sandbox.files.filenames import printable, safe_name
from autogen_codeact.sandbox.files.host_folder import HostFolder, explained, file_error, plain_mode
from autogen_codeact.sandbox.files.incoming import DIGEST_MAX_BYTES, Incoming, Usage
from autogen_codeact.sandbox.files.protected import ProtectedNameError, WriteBack, left_out
from autogen_codeact.sandbox.files.scan import USE_MOUNT, Scan, Signature, Skipped, TooLongError, signature_of
from autogen_codeact.sandbox.host.locks import CrossLoopSemaphore

__all__ = ["HostFile", "Incoming", "Skipped", "Workspace", "safe_name"]

T = TypeVar("T")

# File times move in ticks of up to 10 ms, so a second write of the same length can leave a fresh file's stat as it was.
# Small files that were fresh when they were sent are therefore told apart by their content, once.
_FRESH_NS = 50_000_000
# A scan of this size may run on the event loop; a larger one runs in a thread.
_QUICK_ENTRIES = 100
_QUICK_BYTES = 64 * 1024
_QUICK_STATS = 500


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
    """The host's side of the workspace. A lock serializes its methods, in whatever threads they are called.

    Args:
        root: The folder on the host; `prepare` creates it.
        max_files: Maximum number of files; the maximum of entries of any kind is twice as high.
        max_file_bytes: Size of one file in bytes, 100 MiB by default. Larger ones are neither sent nor stored nor counted.
        max_total_bytes: Size of all files in bytes, 1 GiB by default.
        write_back: Protected names that are stored nevertheless; none by default.
        counted: Whether existing entries of the folder count against the limits. Default True.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_files: int = 10_000,
        max_file_bytes: int = 100 * 1024**2,
        max_total_bytes: int = 1024**3,
        write_back: WriteBack | None = None,
        counted: bool = True,
    ) -> None:
        self.root = Path(root)
        self.max_files = max_files
        self.max_file_bytes = max_file_bytes
        self.max_total_bytes = max_total_bytes
        self.skipped: list[Skipped] = []
        """Files that the last `outgoing` left out: because of a limit each time, for another reason once."""
        self._apart: set[str] = set()
        self.write_back = write_back if write_back is not None else WriteBack()
        self.folder = HostFolder(self.root)
        self.lock = threading.RLock()
        self.turns = CrossLoopSemaphore()
        """For callers with several transfers that belong together."""
        self._closed = False
        self.incoming: set[Incoming] = set()
        self._reported: set[Skipped] = set()
        self._reported_names: set[str] = set()
        self._notes: dict[str, None] = {}
        self._synced: dict[str, _Synced] = {}
        self._scanned: dict[str, os.stat_result] = {}
        self._scanned_at_ns = 0
        self._digests: dict[str, bytes] = {}
        self._state: dict[str, Signature] = {}
        self._state_since = 0.0
        self._settled: tuple[tuple[str, Signature], ...] = ()
        self._usage = None if counted else Usage(0, 0, 0, complete=True)
        self._bytes_left: int | None = None

    def prepare(self) -> None:
        """Create the folder and see that it can be written.

        Raises:
            SandboxFileError: It can't be; the message says what to do.
        """
        with self.used():
            self.folder.prepare()

    def close(self) -> None:
        """Stop storing files: wait for a write in progress, and remove half-written files."""
        with self.lock:
            self._closed = True
            for part in list(self.incoming):
                part.abandon()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            SandboxDied: The workspace is closed.
        """
        with self.lock:
            if self._closed:
                raise SandboxDied("the sandbox was stopped while files were copied")
            yield

    def note(self, *texts: str) -> None:
        """Add notes for the next result."""
        self._notes.update(dict.fromkeys(texts))

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes for a result, once."""
        if not self._notes:
            return ()
        notes, self._notes = self._notes, {}
        return tuple(notes)

    def outgoing(self, *, quick: bool = False) -> list[HostFile]:
        """Find the files that are new or changed since the sandbox had them; on the first call, all of them.

        Symbolic links are never followed. What is left out is named in `skipped`.

        Args:
            quick: Whether to give up if it may block an event loop for too long. Default False.

        Returns:
            The files to send, sorted by name.

        Raises:
            SandboxFileError: The folder does not exist or can't be read.
            TooLongError: `quick`, and there are too many entries.
        """
        with self.used():
            self._bytes_left = _QUICK_BYTES if quick else None
            self._scanned_at_ns = time.time_ns()
            scan = self._scan(_QUICK_ENTRIES if quick else None)
            changed = [name for name, status in scan.files.items() if not self._in_step(name, status)]
            self._scanned = scan.files
            self._digests.clear()
            if scan.complete:
                for name in self._synced.keys() - scan.files.keys():
                    del self._synced[name]
            files = self._within_caps(scan, sorted(changed))
            self._note_state(scan, in_step=not changed)
            self.skipped = [entry for entry in scan.skipped if entry.limit or entry not in self._reported]
            self._reported = set(scan.skipped)
            return files

    @property
    def looks_quick(self) -> bool:
        """Whether `unchanged` is fast enough for the event loop."""
        return len(self._settled) <= _QUICK_STATS

    def at_once(self, work: Callable[..., T], **options: Any) -> T | None:
        """Run a function if the lock is free, else return None, because an event loop must not wait for a thread."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return work(**options)
        finally:
            self.lock.release()

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
        """The files of the host that the sandbox has, in their last transferred version."""
        return {name: entry.signature for name, entry in self._synced.items() if name not in self._apart}

    def stays_apart(self, name: str) -> None:
        """Record that the sandbox's file of this name differs from the host's."""
        if name in self._synced:
            self._apart.add(name)

    def read(self, file: HostFile) -> Generator[bytes]:
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
        small = file.size <= DIGEST_MAX_BYTES
        for chunk in self.folder.chunks(name, file.size):
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

    def refused(self, name: str) -> str | None:
        """The protected name because of which a file is not stored, or None.

        Args:
            name: Path relative to the workspace.
        """
        return self.write_back.refused(name)

    def reported(self, name: str) -> bool:
        """Whether it was reported already that a protected name is not stored; afterwards it counts as reported."""
        known = name in self._reported_names
        self._reported_names.add(name)
        return known

    def holds(self, name: str, content: bytes) -> bool:
        """Whether a file has this content already; writing it again would only use the disk."""
        try:
            return b"".join(self.folder.chunks(self._checked(name), len(content) + 1)) == content
        except SandboxFileError:
            return False

    def store(self, name: str, mode: int, chunks: Iterable[bytes]) -> Path:
        """Write a file that the sandbox sent: whole or not at all, and only inside the folder.

        It is written under a temporary name and renamed, so a symbolic link at its path is replaced and the link's
        target is unchanged. A link instead of a folder in its path is refused.

        Args:
            name: Path relative to the workspace.
            mode: Permission bits in the sandbox; only whether anybody may execute it is kept.
            chunks: The content. Exceptions of the iterator are raised.

        Returns:
            The file on the host.

        Raises:
            SandboxFileError: The name is unsafe or protected, a limit is exceeded, or the host can't write; see `errno`.
            SandboxDied: The workspace is closed.
        """
        with self.used():
            incoming = self.begin(name, mode)
            try:
                for chunk in chunks:
                    incoming.write(chunk)
                return incoming.commit()
            except BaseException:
                incoming.abandon()
                raise

    def begin(self, name: str, mode: int, size: int = 0) -> Incoming:
        """Begin to write a file, as `store` does, whose content arrives in pieces.

        Args:
            name: Path relative to the workspace.
            mode: Permission bits in the sandbox.
            size: Its minimum size in bytes. Default 0.

        Raises:
            SandboxFileError: As for `store`.
            SandboxDied: The workspace is closed.
        """
        with self.used():
            name = self._checked(name)
            task = f"Can't store `{printable(name)}` in {self.root}"
            if (protected := self.refused(name)) is not None:
                raise file_error(errno.EPERM, task, left_out(protected), ProtectedNameError)
            incoming = Incoming(self, name, mode, size, task)
            self.incoming.add(incoming)
            return incoming

    def stored(self, incoming: Incoming, name: str, status: os.stat_result | None, digest: bytes | None) -> None:
        """Remember that the sandbox has a file that was stored: for `Incoming`.

        Args:
            incoming: What has been stored.
            name: Its path.
            status: Its status; None if another process on the host has replaced it already.
            digest: Of its content, where it is small.
        """
        self.incoming.discard(incoming)
        if status is not None:
            self._apart.discard(name)
            self._synced[name] = _Synced(signature_of(status), digest)

    def remove(self, name: str) -> None:
        """Remove a file of the folder itself, if it is there.

        Args:
            name: Its name, without a folder.
        """
        with suppress(OSError, SandboxFileError), self.folder.opened([], "remove a file in") as folder:
            os.unlink(name, dir_fd=folder)

    def _scan(self, give_up_after: int | None = None) -> Scan:
        scan = Scan(self.max_files, self.max_file_bytes, give_up_after)
        with self.folder.opened([], "list") as folder, explained(f"Can't list {self.root}"):
            scan.folder(folder, "", 1)
        self._usage = Usage(scan.entries, len(scan.files), scan.bytes, scan.complete)
        return scan

    @property
    def usage(self) -> Usage:
        """The counted content of the folder; scans it on the first call."""
        if self._usage is None:
            self._scan()
        assert self._usage is not None
        return self._usage

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
        if self._bytes_left is not None:
            self._bytes_left -= size
            if self._bytes_left < 0:
                raise TooLongError
        digest = blake2b(digest_size=16)
        try:
            for chunk in self.folder.chunks(name, size):
                digest.update(chunk)
        except SandboxFileError:
            return None
        return digest.digest()

    def _fresh(self, status: os.stat_result) -> bool:
        return self._scanned_at_ns - max(status.st_mtime_ns, status.st_ctime_ns) < _FRESH_NS

    def _within_caps(self, scan: Scan, changed: list[str]) -> list[HostFile]:
        """Build the list to send."""
        total = sum(status.st_size for status in scan.files.values()) - sum(scan.files[n].st_size for n in changed)
        files = []
        for name in changed:
            status = scan.files[name]
            if self._too_large(scan, name, status, total):
                continue
            reason = self._refusal(name, status)
            if reason is not None:
                scan.skip(name, reason)
                continue
            total += status.st_size
            files.append(HostFile(name, status.st_size, plain_mode(status.st_mode), self.root / name))
        return files

    def _too_large(self, scan: Scan, name: str, status: os.stat_result, total: int) -> bool:
        if status.st_size > self.max_file_bytes:
            reason = (
                f"has {status.st_size:,} bytes; at most {self.max_file_bytes:,} are sent. upload() sends it once, and"
            )
        elif total + status.st_size > self.max_total_bytes:
            reason = f"would bring all files together over {self.max_total_bytes} bytes."
        else:
            return False
        scan.skip(name, f"{reason} {USE_MOUNT}", limit=True)
        return True

    def _refusal(self, name: str, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file."
        try:
            safe_name(name)
        except ValueError as error:
            return f"has a name that can't be sent. {error}"
        return None if os.access(self.root / name, os.R_OK) else "can't be read by this user."

    def _checked(self, name: str) -> str:
        try:
            return safe_name(name)
        except ValueError as error:
            raise file_error(errno.EINVAL, "", str(error)) from None
