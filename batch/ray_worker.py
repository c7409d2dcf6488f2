"""The program in a Ray actor: it runs attempts in sandboxes of its node, and the driver requests their logs piece by piece.

Importing this imports no Ray: `ray_backend.py` makes actors of `RayWorker`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pickle
import platform
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptResult, AttemptWork, WorkerContext, run_attempt
from autogen_codeact.batch.backend import BatchContext
from autogen_codeact.batch.components import AgentTemplate
from autogen_codeact.batch.errors import AttemptError, BatchBudgetError
from autogen_codeact.batch.folder_changes import FolderChanges
from autogen_codeact.batch.folder_copy import FolderCopy
from autogen_codeact.batch.pieces import Header, Piece, cut
from autogen_codeact.sandbox.host.waiting import in_thread, in_threads

FOLDER, LOCK = "codeact-ray-", "lock"
POLL_S = 0.1
IDLE_S = 10.0
"""Seconds after which the driver is told that an attempt is still running."""
DRIVER_LOST_S = 300.0
"""Seconds without a question of the driver, after which an attempt does not ask its model any more."""
STOP_S = 30.0
MAX_RESULT = 16 * 1024 * 1024
MAX_ERROR = 64 * 1024
RESULT: TypeAdapter[AttemptResult] = TypeAdapter(AttemptResult)


class WorkerRestartedError(Exception):
    """The actor was made again, and knows nothing of what it was doing."""


@dataclass(frozen=True)
class Inputs:
    """Which files of a task are sent to the worker.

    Args:
        names: Their names in the workspace; their pieces are named by their place in this list.
        resumes: Whether the log and the workspace of an earlier attempt are sent.
    """

    names: tuple[str, ...] = ()
    resumes: bool = False


class RayWorker:
    """Runs attempts; made in the process of an actor."""

    def __init__(self) -> None:
        self._node = _node_name()
        self._root = Path()
        self._lock = -1
        self._context: WorkerContext | None = None
        self._attempts: dict[str, RemoteAttempt] = {}

    async def version(self) -> bytes:
        """Return JSON with `node`, and with the `version` of this package there."""
        return to_json({"node": self._node, "version": __version__})

    async def ready(self, *setup: bytes) -> bytes:
        """Get ready, and say so: JSON with `node`, or with `error`.

        Args:
            setup: The pickled `make_agent`, `SandboxSpec` and `BatchSettings`, in pieces.
        """
        try:
            if self._context is None:
                make_agent, spec, settings = await in_thread(pickle.loads, b"".join(setup))
                await in_thread(_check_there, spec.options.get("data") or (), self._node)
                context = BatchContext(make_agent, spec, _NoGate(), settings).worker(_NoGate())
                if not isinstance(context.make, AgentTemplate):
                    await context.sandboxes.start()
                self._root, self._lock = await in_thread(_own_folder)
                self._context = context
        except Exception as error:  # noqa: BLE001 - whatever is missing on this node
            return to_json({"node": self._node, "error": _short(f"{type(error).__name__}: {error}")})
        return to_json({"node": self._node, "python": platform.python_version()})

    async def begin(self, key: str, work: AttemptWork, inputs: Inputs) -> None:
        """Expect the pieces of an attempt's folders; `run` begins it."""
        if self._context is None:
            raise WorkerRestartedError
        self._attempts[key] = RemoteAttempt(self._root / key, work, inputs, self._context, self._node)

    async def put(self, key: str, raw: bytes) -> None:
        """Take a piece of the attempt's folders."""
        await self._attempt(key).put(Piece.decode(raw))

    async def run(self, key: str) -> None:
        """Begin the attempt."""
        self._attempt(key).start()

    async def next(self, key: str) -> bytes:
        """Return the next piece of an attempt; each is returned once."""
        attempt = self._attempt(key)
        piece = await attempt.next()
        if attempt.is_over:
            del self._attempts[key]
            await attempt.close()
        return piece.encode()

    def _attempt(self, key: str) -> RemoteAttempt:
        if key not in self._attempts:
            raise WorkerRestartedError
        return self._attempts[key]

    async def permit(self, key: str, refusal: str | None) -> None:
        """Let a model call begin, or tell why none may."""
        if (attempt := self._attempts.get(key)) is not None:
            attempt.gate.permit(refusal)

    async def cancel(self, key: str) -> None:
        """Cancel an attempt; `next` then returns what there is, and its end."""
        if (attempt := self._attempts.get(key)) is not None and not attempt.cancel():
            del self._attempts[key]
            await attempt.close()

    async def stop(self) -> None:
        """End all attempts."""
        attempts, self._attempts = list(self._attempts.values()), {}
        await asyncio.gather(*(attempt.close() for attempt in attempts), return_exceptions=True)
        if self._context is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._context.sandboxes.stop()
            if isinstance(self._context.make, AgentTemplate):
                await self._context.make.close()
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)


def _node_name() -> str:
    """Return the name of this node for rows: its address, and what tells it from others with the same one."""
    ray = import_module("ray")
    return f"{ray.util.get_node_ip_address()}/{ray.get_runtime_context().get_node_id()[:8]}"


def _own_folder() -> tuple[Path, int]:
    """Make the folder of this process, and remove those of workers that were killed; returns it and its lock."""
    root = Path(tempfile.mkdtemp(prefix=FOLDER))
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for other in root.parent.glob(f"{FOLDER}*"):
        with suppress(OSError):  # it is in use, or another user's
            descriptor = os.open(other / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other)
            finally:
                os.close(descriptor)
    return root, lock


class _NoGate:
    async def enter(self) -> None:
        raise AssertionError("each attempt has a gate of its own")

    def used(self, prompt_tokens: int, completion_tokens: int) -> None:
        raise AssertionError("each attempt has a gate of its own")


class RemoteGate:
    """Asks the driver for each model call, so that its limits hold over all workers.

    Args:
        changed: Set when there is something to tell the driver.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._waiting: list[asyncio.Future[None]] = []
        self._refusal: str | None = None
        self.pending_calls = 0
        """Calls of which the driver has not been told yet."""
        self.pending_usage: list[tuple[int, int]] = []
        """Tokens of which the driver has not been told yet."""
        self.last_contact = time.monotonic()
        """Monotonic time of the last request of the driver."""

    async def enter(self) -> None:
        """Wait until the driver lets the call begin.

        Raises:
            BatchBudgetError: No further call may.
            ConnectionError: The driver is not there any more.
        """
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(permit)
        self.pending_calls += 1
        self._changed.set()
        try:
            while not permit.done():
                await asyncio.wait({permit}, timeout=IDLE_S)
                if not permit.done() and time.monotonic() - self.last_contact > DRIVER_LOST_S:
                    raise ConnectionError("the driver of the batch does not answer")
        finally:
            with suppress(ValueError):
                self._waiting.remove(permit)
        if self._refusal is not None:
            raise BatchBudgetError(self._refusal)

    def used(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of a call that has ended."""
        self.pending_usage.append((prompt_tokens, completion_tokens))
        self._changed.set()

    def permit(self, refusal: str | None) -> None:
        """Let the call begin that has waited longest."""
        self._refusal = refusal or self._refusal
        while self._waiting:
            permit = self._waiting.pop(0)
            if not permit.done():
                permit.set_result(None)
                break


class RemoteAttempt:
    """One attempt in this process, for a driver elsewhere.

    Args:
        folder: For its log and files; removed at its end.
        work: What is to be done, with paths of the driver.
        inputs: Which files come.
        context: Shared with the other attempts.
        node: Name of this node.
    """

    def __init__(self, folder: Path, work: AttemptWork, inputs: Inputs, context: WorkerContext, node: str) -> None:
        self._folder = folder
        self._inputs = inputs
        self._node = node
        self._changed = asyncio.Event()
        self.gate = RemoteGate(self._changed)
        self._context = replace(context, gate=self.gate)
        sent = {name: str(folder / "inputs" / str(number)) for number, name in enumerate(inputs.names)}
        task = work.task.model_copy(update={"files": {} if inputs.resumes else sent})
        self._work = replace(work, task=task, log=folder / "log", work_dir=folder / "work")
        self._copy = FolderCopy(self._work.log, self._work.work_dir, folder / "inputs")
        self._changes = FolderChanges(self._work.log, self._work.work_dir)
        self._task: asyncio.Task[AttemptResult] | None = None
        self._pieces = self._all_pieces()
        self.is_over = False
        """Whether the last piece was returned."""

    async def put(self, piece: Piece) -> None:
        """Take a piece of its folders, before it begins.

        Raises:
            PieceError: It does not belong here.
        """
        await in_thread(self._copy.write, piece)

    def start(self) -> None:
        """Begin."""
        self._copy.close()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def _run(self) -> AttemptResult:
        if self._inputs.resumes:
            await asyncio.to_thread(self._changes.skip)
        try:
            await asyncio.to_thread(_check_there, self._work.task.data, self._node)
        except FileNotFoundError as error:
            raise AttemptError(type(error).__name__, str(error)) from error
        return await run_attempt(self._work, self._context)

    async def next(self) -> Piece:
        """Return the next piece, when there is one."""
        self.gate.last_contact = time.monotonic()
        return await anext(self._pieces)

    def cancel(self) -> bool:
        """Cancel it; returns whether it has begun."""
        if self._task is not None:
            self._task.cancel()
        return self._task is not None

    async def close(self) -> None:
        """End it, and remove its folder."""
        self._copy.close()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_S)
        await self._pieces.aclose()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _all_pieces(self) -> AsyncGenerator[Piece, None]:
        assert self._task is not None, "start() first"
        last_sent = time.monotonic()
        while True:
            self._changed.clear()
            ended = self._task.done()
            calls, self.gate.pending_calls = self.gate.pending_calls, 0
            if ended or calls or self._changes.has_grown():  # one look at a local file: a thread would cost more
                async for piece in in_threads(self._changes.pieces(whole=ended and not _has_result(self._task))):
                    yield piece
                    last_sent = time.monotonic()
            while self.gate.pending_usage:
                yield Piece(Header(kind="used"), to_json(self.gate.pending_usage.pop(0)))
            for _ in range(calls):
                yield Piece(Header(kind="enter"))
            if ended:
                break
            if time.monotonic() - last_sent > IDLE_S:
                last_sent = time.monotonic()
                yield Piece(Header(kind="idle"))
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()
        for piece in self._end(self._task):
            self.is_over = piece.header.last
            yield piece

    def _end(self, task: asyncio.Task[AttemptResult]) -> list[Piece]:
        if task.cancelled():
            return [Piece(Header(kind="cancelled"))]
        try:
            result = task.result()
        except BatchBudgetError as error:
            return [Piece(Header(kind="budget"), _short(str(error)).encode("utf-8", "replace"))]
        except AttemptError as error:
            return _error(error, self._node)
        except Exception as error:  # noqa: BLE001 - a defect of ours, or a disk that fails
            return _error(AttemptError(type(error).__name__, str(error)), self._node)
        result.engine = f"{self._node} {result.engine}" if result.engine else self._node
        for name in ("answer", "error"):
            if (text := getattr(result, name)) is not None:
                setattr(result, name, text.encode("utf-8", "replace").decode())
        data = RESULT.dump_json(result)
        if len(data) > MAX_RESULT:
            text = f"the result has {len(data):,} bytes; a worker may send {MAX_RESULT:,}"
            return _error(AttemptError("ResultTooLarge", text, usage=result.usage, run=result.run), self._node)
        return cut("result", data)


def _check_there(paths: Iterable[str | Path], node: str) -> None:
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(
                f"data: {path} does not exist on the node {node}. Data is not sent: have it at the same path on each node, for "
                "example in a shared file system, or use `files` of the tasks, which are sent"
            )


def _has_result(task: asyncio.Task[AttemptResult]) -> bool:
    return not task.cancelled() and task.exception() is None


def _error(error: AttemptError, node: str) -> list[Piece]:
    fields: dict[str, Any] = {**vars(error), "error": _short(error.error)}
    fields["engine"] = f"{node} {error.engine}" if error.engine else node
    return cut("error", to_json(fields))


def _short(text: str) -> str:
    return text[:MAX_ERROR].encode("utf-8", "replace").decode()


__all__ = ["MAX_RESULT", "RESULT", "Inputs", "RayWorker", "WorkerRestartedError"]
