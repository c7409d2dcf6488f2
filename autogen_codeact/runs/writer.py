"""Writing a run log: whole lines, in order, off the event loop; a disk that fails never breaks the run."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autogen_codeact.runs.atomic_file import sync_directory
from autogen_codeact.runs.chain import Chain, user_chain
from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.event_json import event_line
from autogen_codeact.runs.events import Event, LogStopped
from autogen_codeact.runs.folder import FileStore
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.store import EVENTS
from codeact_sandbox.files.private_folders import identity_of, keep_private
from codeact_sandbox.host.waiting import complete, in_thread

logger = logging.getLogger("autogen_codeact")

RESERVE = ".reserve"
RESERVE_BYTES = 64 * 1024
DEADLINE_S = 20.0  # seconds to wait for the disk, after which the run goes on without a log
LOCK_S = 0.2  # seconds to wait for those who only look whether a log is being written
MAX_WAITING = 500  # events that wait to be written before `put` makes the run wait, too
MAX_LINE = 1024 * 1024
"""No line is longer: an event of more than `LARGE_LINE` is in a file."""

MakeEvent = Callable[[FileStore], Event]
"""Makes an event in the thread that writes, from what takes long to serialize."""


class LogLocked(RuntimeError):
    """Another process writes this run's log."""


class LogWriter:
    """Appends events to the log of a run; made by `create` or `extend`.

    Everything is written by one thread. If that fails, or takes longer than `DEADLINE_S`, the log ends there, with a warning and,
    if possible, a `LogStopped`; the run goes on.
    """

    def __init__(
        self,
        folder: Path,
        redaction: Redaction,
        *,
        last: int = 0,
        size: int = 0,
        found: int | None = None,
        chain: Chain | None = None,
    ) -> None:
        self.folder = folder
        self.redaction = redaction
        self.files = FileStore(folder, redaction.content)
        self.stopped: str | None = None  # why nothing is written any more, or None
        self._seq = last
        self._size = size
        self._chain = chain
        self._mac = chain.mac if chain is not None else b""  # of what has been written
        self._found = found
        self._descriptor = -1
        self._release: Callable[[], None] = lambda: None
        self._waiting: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    @classmethod
    async def create(cls, folder: Path | str, redaction: Redaction) -> Self:
        """Begin the log of a new run."""
        return await cls(Path(folder), redaction)._open(new=True)

    @classmethod
    async def extend(
        cls,
        folder: Path | str,
        redaction: Redaction,
        *,
        last: int,
        size: int,
        found: int | None = None,
        chain: Chain | None = None,
    ) -> Self:
        """Continue the log of a run; what is behind its last whole line is cut off.

        Args:
            last: `seq` of the last event that was read.
            size: Bytes up to the end of that event's line.
            found: Bytes that the log had when it was read. Default: do not check that it is still as it was.
            chain: What has checked the log up to there, if this user has written it. Default: new lines have no codes, either.

        Raises:
            OSError: It can't be written: a run must not be continued without a log.
        """
        return await cls(Path(folder), redaction, last=last, size=size, found=found, chain=chain)._open(new=False)

    async def _open(self, *, new: bool) -> Self:
        try:
            async with asyncio.timeout(DEADLINE_S):
                await in_thread(self._prepare, new)
        except OSError as error:  # a TimeoutError is one, too
            self._close_file()
            if not new or isinstance(error, FileExistsError):
                raise
            self._stop(_reason(error))
            return self
        except BaseException:
            self._close_file()
            raise
        self._thread = threading.Thread(target=self._work, name="run-log", daemon=True)
        self._thread.start()
        return self

    def _prepare(self, new: bool) -> None:
        if new:
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(self.folder.iterdir()):
                raise FileExistsError(
                    f"{self.folder} is not empty: give each run a folder of its own, or continue this one with "
                    "`codeact resume` or resume()."
                )
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if new else 0)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._release = keep_private(folder)
            self.files.identity = identity_of(folder)
            descriptor = os.open(EVENTS, flags, 0o600, dir_fd=folder)
        except PermissionError as error:
            if error.filename is None:  # of `keep_private`
                raise RunFolderError(f"A run can't be kept in {self.folder}: {error.strerror}.") from None
            raise
        finally:
            os.close(folder)
        try:
            lock(descriptor, self.folder)
            if self._found is not None and os.fstat(descriptor).st_size != self._found:
                raise LogLocked(f"{self.folder} has just been written by another process: try again.")  # noqa: TRY301
            # A full disk must still take the event that says so.
            with suppress(FileExistsError), open(self.folder / RESERVE, "xb") as reserve:
                reserve.write(bytes(RESERVE_BYTES))
            if not new:
                os.ftruncate(descriptor, self._size)
            elif (chain := user_chain(make=True)) is not None:
                chain.begin(descriptor)
                self._chain, self._mac = chain, chain.mac
            sync_directory(self.folder)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    # On the event loop

    def put(self, event: Event | MakeEvent, *, sync: bool = False) -> None:
        """Append an event, without waiting for it."""
        if self._is_open:
            self._waiting.put(_Item(event, sync))

    async def write(self, event: Event | MakeEvent, *, sync: bool = False) -> None:
        """Append an event, and wait until it is written, or until the log has ended."""
        if self._is_open:
            await self._written(event, sync=sync)

    async def keep_up(self) -> None:
        """Wait for the disk if many events are waiting to be written."""
        if self._waiting.qsize() > MAX_WAITING and self._is_open:
            await self._written(None, sync=False)

    async def flush(self) -> None:
        """Wait until all events are on the disk."""
        if self._is_open:
            await self._written(None, sync=True)

    async def close(self) -> None:
        """Write what waits, and end; further events are dropped."""
        ended, self._ended = self._ended, True
        if ended or self._thread is None:
            return
        await self._written(None, sync=self.stopped is None, last=True)
        if self.stopped is None:
            await asyncio.to_thread(self._thread.join, DEADLINE_S)

    @property
    def _is_open(self) -> bool:
        return self.stopped is None and not self._ended

    async def _written(self, event: Event | MakeEvent | None, *, sync: bool, last: bool = False) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.put(_Item(event, sync, done))
        if last:
            self._waiting.put(None)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await done
        except TimeoutError:
            self._stop(_reason(TimeoutError()))

    def _stop(self, reason: str) -> None:
        if self.stopped is None:
            self.stopped = reason
            logger.warning("the run goes on without a log in %s: %s", self.folder, reason)

    # In the thread

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            try:
                if self.stopped is None:
                    self._write(item)
            except Exception as error:
                if not isinstance(error, OSError):
                    logger.exception("an event could not be written")
                self._stop(_reason(error))
            if self.stopped is not None:
                self._write_stopped()
            item.resolve()
        with suppress(OSError):
            (self.folder / RESERVE).unlink(missing_ok=True)
        self._close_file()

    def _close_file(self) -> None:
        self._release()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, item: _Item) -> None:
        if item.event is not None:
            self._append(self._line(item.event))
        if item.sync:
            os.fdatasync(self._descriptor)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._size += len(data)
        self._mac = self._chain.mac if self._chain is not None else b""

    def _line(self, event: Event | MakeEvent) -> bytes:
        if not isinstance(event, Event):
            event = event(self.files)
        self._seq += 1
        event.seq = self._seq
        line = event_line(event, self.files, self.redaction.content)
        return (self._chain.signed(line) if self._chain is not None else line) + b"\n"

    def _write_stopped(self) -> None:
        """Cut off what was written of a line, and say why the log ends."""
        if self._descriptor < 0:
            return
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
            (self.folder / RESERVE).unlink(missing_ok=True)
            if self._chain is not None:
                self._chain.mac = self._mac
            self._append(self._line(LogStopped(reason=self.stopped or "")))
            os.fdatasync(self._descriptor)
        self._close_file()


@dataclass(eq=False)
class _Item:
    """An event that waits to be written, and who waits for it."""

    event: Event | MakeEvent | None
    sync: bool
    done: asyncio.Future[None] | None = None

    def resolve(self) -> None:
        """Wake up the caller that waits."""
        if self.done is not None:
            with suppress(RuntimeError):  # its event loop has been closed
                self.done.get_loop().call_soon_threadsafe(complete, self.done)


def lock(descriptor: int, folder: Path) -> None:
    """Take the lock that the one writer of a log holds until it ends, however it ends."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        else:
            return
    raise LogLocked(f"{folder} is being written by another process: wait until that run has ended.")


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"the disk did not answer within {DEADLINE_S:g} s"
    return f"{type(error).__name__}: {error}"
