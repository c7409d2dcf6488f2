"""The program in a Ray actor, which runs attempts in sandboxes of its node, and exchanges their files. It imports no Ray."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import stat
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptWork, Sandboxes, WorkerContext, run_attempt
from autogen_codeact.batch.limits import LocalGate
from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.folder import FILES
from autogen_codeact.runs.store import EVENTS
from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.files.workspace import is_safe
from codeact_sandbox.host.waiting import in_thread

Files = dict[tuple[str, str], bytes | None]
"""Contents by "log" or "work" and the name there; None for a file that is gone. The events of the run are last."""
IDLE_S = 10.0  # seconds after which the driver is told that an attempt is still running
STOP_S = 30.0


class Folders:
    """The folders of an attempt. The methods block for the disk."""

    def __init__(self, log: Path, work_dir: Path) -> None:
        self._folders = {"log": log, "work": work_dir}
        self._marks: dict[str, dict[str, tuple[int, int, int]]] = {"log": {}, "work": {}}

    def changes(self, *, with_work: bool = True) -> Files:
        """Return what is new since the last time: whoever has all of it can continue the run."""
        events = self._folders["log"] / EVENTS
        found: Files = {("log", EVENTS): events.read_bytes()} if events.exists() else {}
        return {**(self._changed("work") if with_work else {}), **self._changed("log"), **found}

    def _changed(self, kind: str) -> Files:
        folder = self._folders[kind]
        before, now = self._marks[kind], _marks(folder)
        if kind == "log":  # the events are sent whole, and the reserve is of the other machine
            now = {name: mark for name, mark in now.items() if name.startswith(f"{FILES}/")}
        found: Files = dict.fromkeys(((kind, name) for name in before.keys() - now.keys()), None)
        for name, mark in now.items():
            if before.get(name) != mark:
                with suppress(FileNotFoundError):
                    found[kind, name] = (folder / name).read_bytes()
        self._marks[kind] = now
        return found

    def write(self, files: Files) -> None:
        """Write what the other side has sent."""
        for (kind, name), content in files.items():
            if not is_safe(name):
                raise ValueError(f"{name!r} is not a path inside the workspace")
            target = self._folders[kind] / name
            if content is None:
                target.unlink(missing_ok=True)
                continue
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            with atomic_binary_file(target, private=True) as file:
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
        self._context: WorkerContext | None = None

    async def ready(self, version: str, setup: bytes) -> str:
        """Get ready, and return the name of the node; a `RuntimeError` says why it can't be used."""
        if version != __version__:
            there = f"it has version {__version__} of autogen-codeact, and the driver has {version}"
            raise RuntimeError(f"node {self._node}: {there}")
        try:
            if self._context is None:
                make_agent, spec, settings = await in_thread(pickle.loads, setup)
                sandboxes = Sandboxes(spec)
                await sandboxes.start()
                self._context = WorkerContext(make_agent, sandboxes, LocalGate(settings), settings.task_timeout)
        except Exception as error:  # noqa: BLE001 - whatever is missing on this node
            raise RuntimeError(f"node {self._node}: {type(error).__name__}: {error}") from None
        return self._node

    async def run(self, work: AttemptWork, given: Files) -> AsyncGenerator[Sent, None]:
        """Run an attempt, and yield what the driver has to know, its result at last."""
        if self._context is None:
            raise ConnectionResetError("the actor was made again, and knows nothing of what it was doing")
        async for sent in RemoteAttempt(work, self._context).run(given):
            yield sent

    async def stop(self) -> None:
        """End all sandboxes."""
        if self._context is not None:
            await self._context.sandboxes.stop()


class Sent(NamedTuple):
    """Something that an attempt says to the driver.

    Args:
        kind: "files": what is new in its folders. "enter": a model call wants to begin. "used": the tokens of one. "idle":
            nothing. "result": the end.
    """

    kind: Literal["files", "enter", "used", "idle", "result"]
    content: Any = None


class RemoteAttempt:
    """One attempt in this process, for a driver elsewhere, which lets each model call begin."""

    def __init__(self, work: AttemptWork, context: WorkerContext) -> None:
        self._folder = TemporaryFolder()
        log, work_dir = self._folder.path / "log", self._folder.path / "work"
        self._work = replace(work, log=log, work_dir=work_dir, has_files=True)
        self._context = replace(context, gate=self)
        self._folders = Folders(log, work_dir)
        self._unsent: asyncio.Queue[Sent | None] = asyncio.Queue()

    async def run(self, given: Files) -> AsyncGenerator[Sent, None]:
        """Run it, and yield what the driver has to know. Who takes an item has done what the one before it asks for."""
        await in_thread(self._fill, given)
        task = asyncio.create_task(run_attempt(self._work, self._context))
        task.add_done_callback(lambda _: self._unsent.put_nowait(None))
        try:
            while (sent := await self._next()) is not None:
                if sent.kind == "enter":
                    yield Sent("files", await in_thread(self._folders.changes))
                    yield Sent("enter")
                    yield Sent("idle")
                    sent.content.set()
                else:
                    yield sent
            has_failed = task.cancelled() or task.exception() is not None
            yield Sent("files", await in_thread(lambda: self._folders.changes(with_work=has_failed)))
            yield Sent("result", task.result())
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_S)
            await self._folder.remove()

    def _fill(self, given: Files) -> None:
        self._work.work_dir.mkdir(parents=True)
        self._folders.write(given)
        self._folders.changes()  # the driver has it

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
