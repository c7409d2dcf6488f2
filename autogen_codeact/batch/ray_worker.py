"""The program in an actor of a Ray cluster, and the files that it exchanges with the driver."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import stat
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal, NamedTuple

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptWork, BatchContext, Worker
from autogen_codeact.batch.settings import LocalGate
from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.folder import FILES
from autogen_codeact.runs.store import EVENTS
from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.types.filenames import is_safe

PART_BYTES = 8 * 1024**2  # of files that are sent at a time: neither side has more of them in memory
PART_PIECES = 1_000
END_S = 30.0
IDLE_S = 10.0  # seconds after which an attempt reports to the driver that it is still running


class Piece(NamedTuple):
    kind: str  # "log" or "work"
    name: str
    content: bytes | None  # None for a file that is gone
    is_last: bool = True


class Folders:
    """The folders of an attempt. The methods block for the disk."""

    def __init__(self, log: Path, work_dir: Path) -> None:
        self._folders = {"log": log, "work": work_dir}
        self._marks: dict[str, dict[str, tuple[int, int, int]]] = {"log": {}, "work": {}}
        self._unfinished: IO[bytes] | None = None

    def changes(self, *, with_work: bool = True) -> Generator[list[Piece]]:
        """Yield in parts what is new since the last time: whoever has all of it can continue the run. The events are last."""
        part: list[Piece] = []
        size = 0
        events = self._pieces("log", EVENTS)
        for piece in chain(self._changed("work") if with_work else (), self._changed("log"), events):
            size += len(piece.content or b"")
            if part and (size > PART_BYTES or len(part) >= PART_PIECES):
                yield part
                part, size = [], len(piece.content or b"")
            part.append(piece)
        if part:
            yield part

    def _pieces(self, kind: str, name: str) -> Iterator[Piece]:
        with suppress(FileNotFoundError), open(self._folders[kind] / name, "rb") as file:
            content = file.read(PART_BYTES)
            while more := file.read(PART_BYTES):
                yield Piece(kind, name, content, is_last=False)
                content = more
            yield Piece(kind, name, content)

    def _changed(self, kind: str) -> Iterator[Piece]:
        folder = self._folders[kind]
        before, now = self._marks[kind], _marks(folder)
        if kind == "log":  # the events are sent whole, and the reserve is of the other machine
            now = {name: mark for name, mark in now.items() if name.startswith(f"{FILES}/")}
        for name in before.keys() - now.keys():
            yield Piece(kind, name, None)
        for name, mark in now.items():
            if before.get(name) != mark:
                yield from self._pieces(kind, name)
        self._marks[kind] = now

    def write(self, part: list[Piece]) -> None:
        """Write what the other side has sent."""
        for kind, name, content, is_last in part:
            if not is_safe(name):
                raise ValueError(f"{name!r} is not a path inside the workspace")
            target = self._folders[kind] / name
            if content is None:
                target.unlink(missing_ok=True)
                continue
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            if not is_last:
                self._unfinished = self._unfinished or TemporaryFile(dir=target.parent)  # noqa: SIM115 - closed with the last piece
                self._unfinished.write(content)
                continue
            with atomic_binary_file(target, private=True) as file:
                if self._unfinished is not None:
                    self._unfinished.seek(0)
                    shutil.copyfileobj(self._unfinished, file)
                    self._unfinished.close()
                    self._unfinished = None
                file.write(content)


def _marks(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the regular files of a folder, with what differs when one is written."""
    found: dict[str, tuple[int, int, int]] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):
                status, name = path.lstat(), path.relative_to(folder).as_posix()
                if stat.S_ISREG(status.st_mode) and is_safe(name):
                    found[name] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


class RayWorker:
    """Runs attempts; made in the process of an actor."""

    def __init__(self) -> None:
        ray = import_module("ray")
        # Nodes may have the same address.
        self._node = f"{ray.util.get_node_ip_address()}/{ray.get_runtime_context().get_node_id()[:8]}"
        self._worker: Worker | None = None

    async def ready(self, version: str, setup: bytes) -> str:
        """Get ready, and return the name of the node; a `RuntimeError` says why it can't be used."""
        if version != __version__:
            there = f"it has version {__version__} of autogen-codeact, and the driver has {version}"
            raise RuntimeError(f"node {self._node}: {there}")
        try:
            if self._worker is None:
                make_agent, kind, options, settings = await in_thread(pickle.loads, setup)
                worker = Worker()
                await worker.start(BatchContext(make_agent, kind, options, LocalGate(settings), settings))
                self._worker = worker
        except Exception as error:  # noqa: BLE001 - whatever is missing on this node
            raise RuntimeError(f"node {self._node}: {type(error).__name__}: {error}") from None
        return self._node

    async def run(self, work: AttemptWork, parts: list[Any]) -> AsyncGenerator[Sent, None]:
        """Run an attempt, and yield what the driver has to know, its result at last; `parts` are its files, kept by Ray."""
        if self._worker is None:
            raise ConnectionResetError("the actor was made again, and has no sandboxes yet")
        attempt = RemoteAttempt(work, self._worker)
        for part in parts:
            await in_thread(attempt.fill, await part)
        async for sent in attempt.run():
            yield sent

    async def stop(self) -> None:
        """End all sandboxes."""
        if self._worker is not None:
            await self._worker.stop()


class Sent(NamedTuple):
    """Something that an attempt says to the driver.

    Args:
        kind: "files": a part of what is new in its folders. "enter": a model call wants to begin. "used": the tokens of one.
            "idle": nothing. "result": the end.
    """

    kind: Literal["files", "enter", "used", "idle", "result"]
    content: Any = None


class RemoteAttempt:
    """One attempt in this process, for a driver elsewhere, which lets each model call begin."""

    def __init__(self, work: AttemptWork, worker: Worker) -> None:
        self._folder = TemporaryFolder()
        log, work_dir = self._folder.path / "log", self._folder.path / "work"
        self._work = replace(work, log=log, work_dir=work_dir, has_files=True)
        self._worker = worker
        self._folders = Folders(log, work_dir)
        self._unsent: asyncio.Queue[Sent | None] = asyncio.Queue()

    async def run(self) -> AsyncGenerator[Sent, None]:
        """Run it, and yield what the driver has to know. Who takes an item has done what the one before it asks for."""
        self._work.work_dir.mkdir(parents=True, exist_ok=True)
        async for _ in in_threads(self._folders.changes()):
            pass  # the driver has it
        task = asyncio.create_task(self._worker.run(self._work, self))
        task.add_done_callback(lambda _: self._unsent.put_nowait(None))
        try:
            while (sent := await self._next()) is not None:
                if sent.kind == "enter":
                    async for part in in_threads(self._folders.changes()):
                        yield Sent("files", part)
                    yield Sent("enter")
                    yield Sent("idle")
                    sent.content.set()
                else:
                    yield sent
            has_failed = task.cancelled() or task.exception() is not None
            async for part in in_threads(self._folders.changes(with_work=has_failed)):
                yield Sent("files", part)
            yield Sent("result", task.result())
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=END_S)
            await self._folder.remove()

    def fill(self, part: list[Piece]) -> None:
        """Write a part of the files that the attempt begins with."""
        self._folders.write(part)

    async def _next(self) -> Sent | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                return await self._unsent.get()
        return Sent("idle")

    async def enter(self) -> None:
        """Wait until the driver lets a model call begin; if the budget is used up, it cancels the attempt."""
        may_begin = asyncio.Event()
        self._unsent.put_nowait(Sent("enter", may_begin))
        await may_begin.wait()

    def used(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of a call that has ended."""
        self._unsent.put_nowait(Sent("used", (prompt_tokens, completion_tokens)))
