"""The host folder whose files are exchanged with the sandbox's `/workspace`.

Files are added and changed on either side, and the last writer wins. Deletions are not transferred: a file deleted on
one side stays on the other.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path

from codeact_sandbox.files.file_writer import MAX_HASHED_BYTES, FileWriter, refuse_repository
from codeact_sandbox.files.host_folder import (
    USE_MOUNT,
    HostFolder,
    Quota,
    Scan,
    Skipped,
    explained,
    file_error,
    plain_mode,
)
from codeact_sandbox.files.manifests import MAX_FILES, Signature, Synced
from codeact_sandbox.files.selection import Selection, shown
from codeact_sandbox.host.connection import Reply
from codeact_sandbox.host.requests import Requests
from codeact_sandbox.host.waiting import CrossLoopSemaphore
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxDied, SandboxFileError
from codeact_sandbox.types.filenames import is_safe, printable, safe_name
from codeact_sandbox.types.protected_names import ProtectedNameError, ProtectedNames, not_written_back

# File times move in ticks of up to 10 ms, so a second write of the same length can leave a new file's stat as it was.
# Small files that were new when they were sent are therefore compared by their content, once.
_FRESH_NS = 50_000_000
_COMPARED_BYTES = 1024**2
MAX_NAME_SHOWN = 200
LEFT_OUT = (
    "(secrets, what tools make, and what .gitignore and exclude= name; include=[...] or --include NAME sends it)."
)


# The change time also sees a new mode, and tools that set the modification time back.
signature_of: Callable[[os.stat_result], Signature] = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")
"""Returns what changes with a file or folder, as far as its file system reports it."""


@dataclass(frozen=True, slots=True)
class HostFile:
    """A regular file on the host whose current version the sandbox does not have."""

    name: str  # path relative to the workspace, with forward slashes
    size: int  # size in bytes when the folder was scanned
    mode: int  # 0o755 where any user may execute it, else 0o644
    path: Path  # the file on the host


SandboxList = tuple[Mapping[str, Synced], Future[Reply]]
"""What the host knows of the files of a sandbox, and the answer to a request for a list of them."""


class Workspace:
    """The host's side of the workspace. A lock serializes its methods, in whatever threads they are called."""

    def __init__(
        self,
        root: Path,
        *,
        max_files: int = 10_000,
        max_file_bytes: int = 100 * 1024**2,
        max_total_bytes: int = 1024**3,
        protected: ProtectedNames | None = None,
        counted: bool = True,
        selection: Selection | None = None,
        is_users: bool = True,
    ) -> None:
        self.root = Path(root)
        self.max_file_bytes = max_file_bytes
        self.protected = protected if protected is not None else ProtectedNames()
        self.selection = selection
        self.skipped: list[Skipped] = []
        """Files that the last `outgoing` left out: because of a limit each time, for another reason once."""
        self.transfer_lock = CrossLoopSemaphore()  # for callers with several transfers that belong together
        self._folder = HostFolder(self.root)
        self._lock = threading.RLock()
        self._closed = False
        self._quota = Quota(max_files, max_file_bytes, max_total_bytes)
        self._counted = not counted
        self.notes: dict[str, None] = {}  # the notes for the next result, in their order
        self._is_users = is_users  # whether the user expects the files there; not in a temporary folder
        self._missing: dict[str, str] = {}  # the reasons by name, for the next result
        self._reported: set[Skipped] = set()
        self._reported_names: set[str] = set()
        self._synced: dict[str, Synced] = {}
        self._changed_in_sandbox: set[str] = set()
        self.new_folders: list[str] = []
        """Empty folders that the last `outgoing` found new; their names end with a slash."""
        self._folders: set[str] = set()  # empty folders that both sides have
        self._scanned: dict[str, os.stat_result] = {}
        self._scanned_at_ns = 0
        self._digests: dict[str, bytes] = {}
        self.settled: tuple[tuple[str, Signature], ...] = ()
        """Paths of the folder in which there is nothing to send; empty if that is not known."""

    def prepare(self) -> None:
        """Create the folder and check that it can be written."""
        with self._used():
            self._folder.prepare()

    def limit_written(self, count: int) -> None:
        """Bound what is written to the disk, in bytes; zeros take no space."""
        self._quota.room = count

    def close(self) -> None:
        """Stop storing files, and wait for a write in progress."""
        with self._lock:
            self._closed = True

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise SandboxDied("the sandbox was stopped while files were copied")
            yield

    def note(self, *texts: str) -> None:
        """Add notes for the next result."""
        self.notes.update(dict.fromkeys(texts))

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes for a result, once."""
        notes, self.notes = self.notes, {}
        return tuple(notes)

    def miss(self, name: str, reason: str) -> None:
        """Record that the user's folder does not have a file."""
        if self._is_users:
            self._missing[printable(name)[:MAX_NAME_SHOWN]] = reason

    def forget_missing(self, name: str) -> None:
        """Let the next result say nothing of a file."""
        self._missing.pop(printable(name)[:MAX_NAME_SHOWN], None)

    def take_not_stored(self) -> str:
        """Return, once, the sentence on files that could not be stored; empty if there are none."""
        missing, self._missing = self._missing, {}
        if not missing:
            return ""
        (name, reason), count = next(iter(missing.items())), len(missing)
        others = f" and {count - 1:,} other files" if count > 1 else ""
        return f"{name}{others} could not be copied to work_dir: {reason}"

    def outgoing(self) -> list[HostFile]:
        """Find the files that are new or changed since the sandbox had them; on the first call, all of them.

        Symbolic links are never followed. What is left out is named in `skipped`.
        """
        with self._used():
            self._scanned_at_ns = time.time_ns()
            scan = self._scan()
            changed = [name for name, status in scan.files.items() if not self._is_synced(name, status)]
            self._scanned = scan.files
            self._digests.clear()
            if scan.complete:
                for name in self._synced.keys() - scan.files.keys():
                    del self._synced[name]
            files = self._within_limits(scan, sorted(changed))
            empty = {name for name in scan.empty_folders() if is_safe(name[:-1])}
            self._folders &= empty
            self.new_folders = sorted(empty - self._folders)
            if names := shown(scan.left_out):
                scan.skip(names, LEFT_OUT)
            self._record_state(scan, is_synced=not changed and not self.new_folders)
            self.skipped = [entry for entry in scan.skipped if entry.limit or entry not in self._reported]
            self._reported = set(scan.skipped)
            return files

    def unchanged(self) -> bool:
        """Return whether it is certain that `outgoing` would find nothing; far cheaper than a scan."""
        settled = self.settled
        try:
            for path, signature in settled:
                if signature_of(os.lstat(path)) != signature:
                    return False
        except OSError:
            return False
        return bool(settled)

    @property
    def in_sandbox(self) -> dict[str, Synced]:
        """The files of the host that the sandbox has, in their last transferred version."""
        return {name: entry for name, entry in self._synced.items() if name not in self._changed_in_sandbox}

    def list_sandbox(self, requests: Requests) -> SandboxList | None:
        """Ask for the files that the sandbox has now, without waiting for the answer; None if they are too many."""
        if len(self._synced) > MAX_FILES:
            return None
        return self.in_sandbox, requests.send(wire.FILE_REQUEST, {"op": "list", "most": MAX_FILES + 1})

    def differs(self, name: str) -> None:
        """Record that the sandbox's file of this name differs from the host's."""
        if name in self._synced:
            self._changed_in_sandbox.add(name)

    def send(self, name: str) -> None:
        """Let the sandbox get a file that the host itself has stored, with the next files that it gets."""
        with self._lock:
            self._synced.pop(name, None)

    def read(self, file: HostFile) -> Generator[bytes]:
        """Yield the content of a file that `outgoing` found, never more than its size then. The next call finds later changes."""
        name = self._checked(file.name)
        digest = blake2b(digest_size=16)
        hashed = file.size <= MAX_HASHED_BYTES
        for chunk in self._folder.chunks(name, file.size):
            if hashed:
                digest.update(chunk)
            yield chunk
        if hashed:
            self._digests[name] = digest.digest()

    def mark_synced(self, names: Iterable[str]) -> None:
        """Remember that the sandbox has these files as the last `outgoing` saw them."""
        for name in names:
            status = self._scanned[name]
            self._mark(name, status, self._digests.get(name), fresh=self._is_fresh(status))

    def mark_folders(self, names: Iterable[str]) -> None:
        """Remember that the sandbox has these empty folders."""
        self._folders.update(names)

    def _mark(self, name: str, status: os.stat_result, digest: bytes | None, *, fresh: bool) -> None:
        self._changed_in_sandbox.discard(name)
        compared = fresh and digest is not None and status.st_size <= _COMPARED_BYTES
        self._synced[name] = Synced(signature_of(status), digest, compared)

    def first_report(self, name: str) -> bool:
        """Return whether it was not reported before that a protected name is not stored; afterwards it counts as reported."""
        is_first = name not in self._reported_names
        self._reported_names.add(name)
        return is_first

    def store(self, name: str, mode: int, chunks: Iterable[bytes]) -> Path:
        """Write a file that the sandbox sent: whole or not at all, and only inside the folder; see `begin`."""
        with self._used():
            writer = self.begin(name, mode)
            try:
                for chunk in chunks:
                    writer.write(chunk)
                return self.commit(writer)
            finally:
                writer.abandon()

    def begin(self, name: str, mode: int, size: int = 0) -> FileWriter:
        """Begin to write a file, as `store` does, whose content arrives in pieces."""
        with self._used():
            name = self._admitted(name)
            return FileWriter(
                self._folder, name, mode, size, quota=self._quota, protected=self.protected, lock=self._lock
            )

    def commit(self, writer: FileWriter) -> Path:
        """End writing a file, and remember that the sandbox has it."""
        with self._used():
            status, digest = writer.commit()
            if status is not None:
                self._mark(writer.name, status, digest, fresh=True)
            if self.selection is not None:
                self.selection.from_sandbox.add(writer.name)
            return self.root / writer.name

    def make_folder(self, name: str) -> None:
        """Create a folder, as `begin` does for a file in it."""
        with self._used():
            name, check = self._admitted(name.removesuffix("/")), partial(refuse_repository, self.protected)
            doing = f"make `{printable(name)}` in"
            with self._folder.opened(name.split("/"), doing, quota=self._quota, check=check):
                self._folders.add(f"{name}/")

    def _admitted(self, name: str) -> str:
        """Check a name of the sandbox, and count what is there already."""
        name = self._checked(name)
        if (part := self.protected.refused_part(name)) is not None:
            task = f"Can't store `{printable(name)}` in {self.root}"
            raise file_error(errno.EPERM, task, not_written_back(part), ProtectedNameError)
        if self.selection is not None and self.selection.protects(name) and os.path.lexists(self.root / name):
            reason = f"it is in work_dir and was not sent. include=[{name!r}] (--include) sends it."
            raise file_error(errno.EEXIST, f"Can't store `{printable(name)}` in {self.root}", reason)
        if not self._counted:
            self._scan()
        return name

    def remove(self, name: str) -> None:
        """Remove a file of the folder itself, if it exists."""
        with suppress(OSError, SandboxFileError), self._folder.opened([], "remove a file in") as folder:
            os.unlink(name, dir_fd=folder)

    def _scan(self) -> Scan:
        quota = self._quota
        scan = Scan(quota.max_files, quota.max_file_bytes, selection=self.selection)
        with self._folder.opened([], "list") as folder, explained(f"Can't list {self.root}"):
            scan.folder(folder, "", 1)
        quota.entries, quota.files = scan.entries, len(scan.files)
        quota.bytes, quota.complete = scan.bytes, scan.complete
        self._counted = True
        return scan

    def _record_state(self, scan: Scan, *, is_synced: bool) -> None:
        """Record the state of a folder in which there is nothing to send, once file times can't hide a change any more."""
        found = {**scan.folders, **scan.files} if is_synced and scan.complete and scan.readable else {}
        if any(map(self._is_fresh, found.values())):
            found = {}
        self.settled = tuple((f"{self.root}/{name}", signature_of(status)) for name, status in found.items())

    def _is_synced(self, name: str, status: os.stat_result) -> bool:
        known = self._synced.get(name)
        if known is None or known.signature != signature_of(status):
            return False
        if known.fresh:
            # An empty file of the same size has the same content.
            if status.st_size and known.digest != self._digest(name, status.st_size):
                return False
            known.fresh = self._is_fresh(status)
        return True

    def _digest(self, name: str, size: int) -> bytes | None:
        digest = blake2b(digest_size=16)
        try:
            for chunk in self._folder.chunks(name, size):
                digest.update(chunk)
        except SandboxFileError:
            return None
        return digest.digest()

    def _is_fresh(self, status: os.stat_result) -> bool:
        # Nothing sets this time back, or ahead.
        return self._scanned_at_ns - status.st_ctime_ns < _FRESH_NS

    def _within_limits(self, scan: Scan, changed: list[str]) -> list[HostFile]:
        """Build the list to send; files that are left out are added to `scan.skipped`."""
        quota = self._quota
        total = sum(status.st_size for status in scan.files.values()) - sum(scan.files[n].st_size for n in changed)
        files = []
        for name in changed:
            status = scan.files[name]
            if status.st_size > quota.max_file_bytes:
                sizes = f"has {status.st_size:,} bytes; at most {quota.max_file_bytes:,} are sent."
                scan.skip(name, f"{sizes} {USE_MOUNT}; in Python, upload() sends it once.", limit=True)
            elif total + status.st_size > quota.max_total_bytes:
                reason = f"would bring all files together over {quota.max_total_bytes} bytes. {USE_MOUNT}."
                scan.skip(name, reason, limit=True)
            elif (problem := self._problem(name, status)) is not None:
                scan.skip(name, problem)
            else:
                total += status.st_size
                files.append(HostFile(name, status.st_size, plain_mode(status.st_mode), self.root / name))
        return files

    def _problem(self, name: str, status: os.stat_result) -> str | None:
        """Return why a file can't be sent, or None."""
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
