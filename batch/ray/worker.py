"""The program in a Ray actor: it runs attempts in sandboxes of its node, and sends their logs while they run.

Importing this imports no Ray: `backend.py` makes actors of `RayWorker`.
"""

from __future__ import annotations

import asyncio
import pickle
import shutil
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptWork, WorkerContext, run_attempt
from autogen_codeact.batch.errors import AttemptError, BatchBudgetError
from autogen_codeact.batch.ray.folders import FolderChanges, FolderCopy, Sent
from autogen_codeact.batch.rows import Row
from autogen_codeact.batch.sandboxes import Sandboxes
from codeact_sandbox.files.temporary_folder import TemporaryFolder
from codeact_sandbox.host.waiting import in_thread, in_threads

POLL_S = 0.1
IDLE_S = 10.0
"""Seconds after which the driver is told that an attempt is still running."""
STOP_S = 30.0


class WorkerRestartedError(Exception):
    """The actor was made again, and knows nothing of what it was doing."""


class RayWorker:
    """Runs attempts; made in the process of an actor."""

    def __init__(self) -> None:
        ray = import_module("ray")
        # Nodes may have the same address.
        self._node = f"{ray.util.get_node_ip_address()}/{ray.get_runtime_context().get_node_id()[:8]}"
        self._folder: TemporaryFolder | None = None
        self._context: WorkerContext | None = None
        self._attempts: dict[str, RemoteAttempt] = {}

    async def ready(self, version: str, setup: bytes) -> tuple[str, str | None]:
        """Get ready; returns the name of the node, and why it can't be used, if so."""
        if version != __version__:
            there = f"it has version {__version__} of autogen-codeact, and the driver has {version}"
            return self._node, f"{there}: install the same version on each node"
        try:
            if self._context is None:
                make_agent, spec, settings = await in_thread(pickle.loads, setup)
                _check_there(spec.options.get("data") or (), self._node)
                sandboxes = Sandboxes(spec)
                await sandboxes.start()
                self._folder = TemporaryFolder()
                self._context = WorkerContext(make_agent, sandboxes, RemoteGate(), settings.task_timeout)
        except Exception as error:  # noqa: BLE001 - whatever is missing on this node
            return self._node, f"{type(error).__name__}: {error}"
        return self._node, None

    async def run(self, key: str, work: AttemptWork, *given: Sent) -> AsyncGenerator[Sent, None]:
        """Run an attempt, and yield what the driver has to know, its result at last; none if it was cancelled."""
        if self._context is None or self._folder is None:
            raise WorkerRestartedError
        attempt = self._attempts[key] = RemoteAttempt(self._folder.path / key, work, self._context, self._node)
        try:
            async for sent in attempt.run(given):
                yield sent
        finally:
            del self._attempts[key]
            await attempt.close()

    async def permit(self, key: str, refusal: str | None) -> None:
        """Let a model call begin, or say why none may."""
        if (attempt := self._attempts.get(key)) is not None:
            attempt.gate.permit(refusal)

    async def cancel(self, key: str) -> None:
        """Cancel an attempt."""
        if (attempt := self._attempts.get(key)) is not None:
            attempt.cancel()

    async def stop(self) -> None:
        """End all attempts and sandboxes."""
        await asyncio.gather(*(attempt.close() for attempt in self._attempts.values()), return_exceptions=True)
        if self._context is not None and self._folder is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._context.sandboxes.stop()
            await self._folder.remove()


class RemoteGate:
    """Asks the driver for each model call, so that its limits hold over all workers."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.unsent: deque[Sent] = deque()
        self._waiting: deque[asyncio.Future[str | None]] = deque()

    async def enter(self) -> None:
        """Wait until the driver lets the call begin."""
        permit: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(permit)
        self._send(Sent("enter"))
        if (refusal := await permit) is not None:
            raise BatchBudgetError(refusal)

    def used(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of a call that has ended."""
        self._send(Sent("used", (prompt_tokens, completion_tokens)))

    def permit(self, refusal: str | None) -> None:
        """Let the call begin that has waited longest, or refuse it."""
        while self._waiting:
            permit = self._waiting.popleft()
            if not permit.done():
                permit.set_result(refusal)
                break

    def _send(self, sent: Sent) -> None:
        self.unsent.append(sent)
        self.changed.set()


class RemoteAttempt:
    """One attempt in this process, for a driver elsewhere."""

    def __init__(self, folder: Path, work: AttemptWork, context: WorkerContext, node: str) -> None:
        self._folder = folder
        self._node = node
        self.gate = RemoteGate()
        self._context = replace(context, gate=self.gate)
        self._work = replace(work, log=folder / "log", work_dir=folder / "work", has_files=True)
        self._changes = FolderChanges(self._work.log, self._work.work_dir)
        self._task: asyncio.Task[Row] | None = None
        self._is_cancelled = False

    async def run(self, given: Iterable[Sent]) -> AsyncGenerator[Sent, None]:
        """Run it, and yield what the driver has to know."""
        await in_thread(self._fill, given)
        task = self._task = asyncio.create_task(self._attempt())
        task.add_done_callback(lambda _: self.gate.changed.set())
        if self._is_cancelled:
            task.cancel()
        ended, last_sent = False, time.monotonic()
        while not ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self.gate.changed.wait()
            self.gate.changed.clear()
            ended = task.done()
            unsent, self.gate.unsent = self.gate.unsent, deque()
            failed = ended and (task.cancelled() or task.exception() is not None)
            if failed or self._changes.has_grown():  # one look at a local file: a thread would cost more
                async for sent in in_threads(self._changes.take(whole=failed)):
                    yield sent
                    last_sent = time.monotonic()
            for sent in unsent:
                yield sent
            if time.monotonic() - last_sent > IDLE_S:
                yield Sent("idle")
                last_sent = time.monotonic()
        if not task.cancelled():
            yield Sent("result", task.result())

    def _fill(self, given: Iterable[Sent]) -> None:
        self._work.work_dir.mkdir(parents=True)
        copy = FolderCopy(self._work.log, self._work.work_dir)
        for sent in given:
            copy.write(sent)
        copy.close()
        for _ in self._changes.take(whole=True):  # the driver has it
            pass

    async def _attempt(self) -> Row:
        try:
            await in_thread(_check_there, self._work.task.data, self._node)
            result = await run_attempt(self._work, self._context)
        except FileNotFoundError as error:
            raise AttemptError(type(error).__name__, str(error), engine=self._node) from None
        except AttemptError as error:
            error.engine = f"{self._node} {error.engine or ''}".strip()
            raise
        result.engine = f"{self._node} {result.engine or ''}".strip()
        return result

    def cancel(self) -> None:
        """Cancel it."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End it, and remove its folder."""
        self.cancel()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=STOP_S)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


def _check_there(paths: Iterable[str | Path], node: str) -> None:
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(
                f"data: {path} does not exist on the node {node}. Data is not sent: have it at the same path on each node, for "
                "example in a shared file system, or use `files` of the tasks, which are sent"
            )
