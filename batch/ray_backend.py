"""Attempts in the actors of a Ray cluster, with their logs in the driver's folder."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptResult, AttemptWork
from autogen_codeact.batch.backend import BatchContext
from autogen_codeact.batch.errors import AttemptError, BatchBackendError, BatchBudgetError
from autogen_codeact.batch.folder_changes import FolderChanges, input_pieces
from autogen_codeact.batch.folder_copy import FolderCopy, whole_lines
from autogen_codeact.batch.limits import ModelGate
from autogen_codeact.batch.pieces import Piece, PieceError
from autogen_codeact.batch.ray_cluster import Cluster
from autogen_codeact.batch.ray_worker import MAX_RESULT, RESULT, Inputs, RayWorker, WorkerRestartedError
from autogen_codeact.batch.run_end import LogEnd, has_begun, read_whole
from autogen_codeact.batch.uncancelled import run_uncancelled
from autogen_codeact.runs.errors import RunError
from autogen_codeact.sandbox.host.waiting import in_thread, in_threads
from autogen_codeact.sandbox.types.filenames import printable
from autogen_codeact.sandbox.types.formatting import format_count

logger = logging.getLogger("autogen_codeact")

T = TypeVar("T")
TASKS_PER_ACTOR = 4
ANSWER_S = 120.0
"""Seconds without an answer, after which an actor counts as lost."""
CANCEL_S = 20.0
STOP_S = 40.0
REVIVE_S = 1.0
# Larger arguments go through Ray's object store, which may write them to a disk.
SETUP_PIECE = 64 * 1024
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FOREIGN = re.compile(
    r"No module named 'autogen_codeact|cannot import name .* from 'autogen_codeact|has no attribute 'version'"
)


@dataclass(eq=False)
class _Actor:
    """An actor, and what it is doing.

    Args:
        handle: Ray's handle.
        node: Name of its node; None until it is ready.
        is_ready: Whether it takes attempts.
        refused: Why it can't be used, or None.
        running: Attempts that it runs.
    """

    handle: Any
    node: str | None = None
    is_ready: bool = False
    refused: str | None = None
    running: set[str] = field(default_factory=set)


class Ray:
    """Runs the attempts of a batch in Ray actors, each with a pool of sandboxes on its node.

    Where actors are placed, what they get, and that they are made again elsewhere when a node is lost, is Ray's. The
    installation of this package, and what the sandboxes need, has to be on each node: see docs/ray.md.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names or that runs on this machine. None: start Ray on this machine, for
            this batch. Or "host:port" of the head node.
        actors: How many. Default: as many as `concurrency` of the batch needs with `tasks_per_actor`.
        tasks_per_actor: Attempts of an actor at the same time. Default: 4, or with `actors` its share of `concurrency`.
        actor_options: Options of the actors, such as `num_cpus`, `resources`, `max_restarts` or `runtime_env`. Default: one CPU
            each, spread over the nodes, made again without limit.
        start_timeout: Seconds to wait for an actor that is ready. Default 120.

    Raises:
        ValueError: A number is not positive.
    """

    def __init__(
        self,
        address: str | None = "auto",
        *,
        actors: int | None = None,
        tasks_per_actor: int | None = None,
        actor_options: Mapping[str, Any] | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        for name, value in (("actors", actors), ("tasks_per_actor", tasks_per_actor), ("start_timeout", start_timeout)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} has to be positive, not {value!r}")
        self._cluster = Cluster(address)
        self._actors_wanted = actors
        self._tasks_per_actor = tasks_per_actor
        self._actor_options = dict(actor_options or {})
        self._start_timeout = start_timeout
        self._actors: list[_Actor] = []
        self._share = 1
        self._gate: ModelGate | None = None
        self._setup: list[bytes] = []
        self._changed: asyncio.Condition
        self._reviving: set[asyncio.Task[None]] = set()

    async def start(self, context: BatchContext) -> None:
        """Connect, and make the actors; returns when one of them is ready.

        Raises:
            BatchBackendError: There is no cluster, or none of its actors can be used; the message says why.
        """
        self._changed = asyncio.Condition()
        await self._cluster.connect()
        ray = self._cluster.ray
        concurrency = context.settings.concurrency
        count = self._actors_wanted or math.ceil(concurrency / (self._tasks_per_actor or TASKS_PER_ACTOR))
        self._share = self._tasks_per_actor or math.ceil(concurrency / count)
        self._gate = context.gate
        self._setup = _pickled(ray, context, count, self._share)
        options = {
            "num_cpus": 1,
            "max_restarts": -1,
            "scheduling_strategy": "SPREAD",
            **self._actor_options,
            "max_task_retries": 0,  # what is done again, and when, is the batch's
        }
        try:
            actor = ray.remote(RayWorker).options(**options)
            self._actors = [_Actor(actor.remote()) for _ in range(count)]
        except (TypeError, ValueError) as error:
            raise BatchBackendError(f"actor_options: {error}") from error
        for each in self._actors:
            self._revive(each)
        async with self._changed:
            try:
                async with asyncio.timeout(self._start_timeout):
                    await self._changed.wait_for(lambda: any(a.is_ready for a in self._actors) or self._all_refused())
            except TimeoutError:
                raise BatchBackendError(self._not_placed(options)) from None
        if self._all_refused():
            raise BatchBackendError(f"no Ray actor can be used: {self._actors[0].refused}")

    def _all_refused(self) -> bool:
        return all(actor.refused is not None for actor in self._actors)

    def _not_placed(self, options: Mapping[str, Any]) -> str:
        requested = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), **(options.get("resources") or {})}
        there = {name: count for name, count in self._cluster.ray.cluster_resources().items() if name in requested}
        return (
            f"no Ray actor was ready within {self._start_timeout:g} s. Each needs "
            f"{ {name: count for name, count in requested.items() if count} }, and the cluster has {there}: "
            "change actor_options=, or give a longer start_timeout= if nodes are still being added."
        )

    async def run(self, work: AttemptWork) -> AttemptResult:
        """Run one attempt in an actor that is ready.

        Raises:
            AttemptError: It has failed, or its actor was lost.
            BatchBudgetError: The budget is used up.
        """
        assert self._gate is not None, "start() first"
        async with self._seat() as (actor, key):
            attempt = _Exchange(actor, key, work, self._gate)
            running = asyncio.create_task(attempt.run(), name=f"ray-{work.task.id}")
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await run_uncancelled(attempt.cancel(running))
                raise
            except Exception as error:
                if not _is_loss(error):
                    raise
                if actor.is_ready:
                    actor.is_ready = False
                    self._revive(actor)
                raise await in_thread(_lost, work.log, actor.node, error) from error

    @asynccontextmanager
    async def _seat(self) -> AsyncIterator[tuple[_Actor, str]]:
        """Wait for an actor with room for one more attempt."""
        key = uuid.uuid4().hex
        async with self._changed:
            try:
                async with asyncio.timeout(None) as limit:
                    loop = asyncio.get_running_loop()
                    while not (free := [a for a in self._actors if a.is_ready and len(a.running) < self._share]):
                        if self._all_refused():
                            raise BatchBackendError(f"no Ray actor can be used: {self._actors[0].refused}")
                        is_lost = not any(actor.is_ready for actor in self._actors)
                        limit.reschedule(loop.time() + self._start_timeout if is_lost else None)
                        await self._changed.wait()
            except TimeoutError:
                text = f"no Ray actor was ready within {self._start_timeout:g} s"
                raise AttemptError("LostWorker", text, retryable=True) from None
            actor = min(free, key=lambda each: len(each.running))
            actor.running.add(key)
        try:
            yield actor, key
        finally:
            actor.running.discard(key)
            await run_uncancelled(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _revive(self, actor: _Actor) -> None:
        """Have an actor take attempts when it is ready: at first, and after Ray has made it again."""
        if actor.refused is None:
            task = asyncio.create_task(self._make_ready(actor), name="ray-actor")
            self._reviving.add(task)
            task.add_done_callback(self._reviving.discard)

    async def _make_ready(self, actor: _Actor) -> None:
        while not actor.is_ready and actor.refused is None:
            try:
                there = from_json(_as_bytes(await actor.handle.version.remote()))
                if there["version"] != __version__:
                    actor.node, actor.refused = there["node"], _other_version(there["version"])
                    break
                # `make_agent` may hold a key: Ray keeps arguments of constructors in its tables, and those of calls nowhere.
                answer = from_json(_as_bytes(await actor.handle.ready.remote(*self._setup)))
                actor.node, actor.refused = answer["node"], answer.get("error")
                actor.is_ready = actor.refused is None
            except Exception as error:  # noqa: BLE001 - Ray's, of many kinds
                if _kinds(error) & {"ActorDiedError", "ActorUnschedulableError"} or not _is_loss(error):
                    actor.refused = _why_refused(error)
                else:
                    await asyncio.sleep(REVIVE_S)
        if actor.refused is not None:
            node = f"node {actor.node}: " if actor.node is not None else ""
            actor.refused = printable(f"{node}{actor.refused}"[:2000])
            logger.warning("A Ray actor can't be used: %s", actor.refused)
        await self._notify()

    async def stop(self) -> None:
        """End the actors with all that they run, and the connection; repeated calls are harmless."""
        actors, self._actors = self._actors, []
        for task in list(self._reviving):
            task.cancel()
        try:
            stops = [asyncio.ensure_future(_stopped(actor)) for actor in actors if actor.is_ready]
            if stops:
                await asyncio.wait(stops, timeout=STOP_S)
            for actor in actors:
                with suppress(Exception):
                    self._cluster.ray.kill(actor.handle, no_restart=True)
        finally:
            await self._cluster.disconnect()


async def _stopped(actor: _Actor) -> None:
    with suppress(Exception):
        await _answered(actor.handle.stop.remote())


class _CancelledByWorkerError(Exception):
    """The worker has cancelled an attempt."""


class _Exchange:
    """The driver's end of one attempt.

    Args:
        actor: Runs it.
        key: Its name there.
        work: What is to be done.
        gate: Of the batch.
    """

    def __init__(self, actor: _Actor, key: str, work: AttemptWork, gate: ModelGate) -> None:
        self._handle = actor.handle
        self._key = key
        self._work = work
        self._gate = gate
        self._copy = FolderCopy(work.log, work.work_dir)
        self._permits: set[asyncio.Task[None]] = set()
        self._end = bytearray()

    async def run(self) -> AttemptResult:
        """Send what the worker needs, and take what it has to say, up to its end."""
        try:
            await self._send()
            while True:
                raw = await _answered(self._handle.next.remote(self._key))
                result = await self._take(Piece.decode(raw))
                if result is not None:
                    return result
        except TimeoutError:
            await self._cancel()
            raise
        except (PieceError, OSError) as error:
            await self._cancel()
            cause = getattr(error, "cause", error)  # of an error that Ray has brought from the worker
            raise AttemptError(type(cause).__name__, f"the files of the attempt: {cause}") from error
        finally:
            for task in self._permits:
                task.cancel()
            await in_thread(self._copy.close)

    async def cancel(self, running: asyncio.Task[AttemptResult]) -> None:
        """Cancel the attempt, and take the rest of its log."""
        await self._cancel()
        _, late = await asyncio.wait({running}, timeout=CANCEL_S)
        if late:
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_S)
        if running.done() and not running.cancelled():
            running.exception()

    async def _cancel(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(CANCEL_S):
                await self._handle.cancel.remote(self._key)

    async def _send(self) -> None:
        work, key = self._work, self._key
        resumes = await in_thread(has_begun, work.log)
        inputs = Inputs(tuple(work.task.files), resumes)
        await _answered(self._handle.begin.remote(key, work, inputs))
        if resumes:
            await in_thread(whole_lines, work.log)
            pieces = FolderChanges(work.log, work.work_dir).pieces(whole=True)
        else:
            pieces = input_pieces(list(work.task.files.values()))
        async for piece in in_threads(pieces):
            await _answered(self._handle.put.remote(key, piece.encode()))
        await _answered(self._handle.run.remote(key))

    async def _take(self, piece: Piece) -> AttemptResult | None:
        """Take one piece; returns the result if it was the last of them."""
        match piece.header.kind:
            case "log" | "file" | "work" | "removed":
                await in_thread(self._copy.write, piece)
            case "enter":
                task = asyncio.create_task(self._permit())
                self._permits.add(task)
                task.add_done_callback(self._permits.discard)
            case "used":
                self._gate.used(*_counts(piece.data))
            case "idle":
                pass
            case "cancelled":
                raise _CancelledByWorkerError
            case "budget":
                raise BatchBudgetError(printable(piece.data.decode("utf-8", "replace")))
            case "result" | "error" as kind:
                self._end += piece.data
                if len(self._end) > MAX_RESULT:
                    raise PieceError(f"the result has more than {MAX_RESULT:,} bytes")
                if piece.header.last:
                    return await in_thread(_result if kind == "result" else _raise_error, bytes(self._end))
            case kind:
                raise PieceError(f"a worker does not send {kind!r}")
        return None

    async def _permit(self) -> None:
        refusal = None
        try:
            await self._gate.enter()
        except BatchBudgetError as error:
            refusal = str(error)
        with suppress(Exception):  # a lost actor is noticed by who asks it for pieces
            await _answered(self._handle.permit.remote(self._key, refusal))


def _pickled(ray: Any, context: BatchContext, actors: int, share: int) -> list[bytes]:
    limit = context.sandboxes.max_sandboxes
    if limit is not None and limit < actors:
        raise BatchBackendError(f"max_sandboxes is {limit}, and there are {actors} actors: each needs at least one.")
    spec = replace(context.sandboxes, concurrency=share, max_sandboxes=limit // actors if limit is not None else None)
    try:
        setup = ray.cloudpickle.dumps((context.make_agent, spec, context.settings))
    except Exception as error:
        raise BatchBackendError(
            f"make_agent or an option of the sandboxes can't be sent to the Ray workers: {printable(str(error))}. Let "
            "make_agent open files, connections and model clients itself."
        ) from error
    return [setup[at : at + SETUP_PIECE] for at in range(0, len(setup), SETUP_PIECE)]


def _result(data: bytes) -> AttemptResult:
    try:
        return RESULT.validate_json(data)
    except ValidationError as error:
        raise PieceError(f"the result can't be read: {format_count(error.error_count(), 'error')}") from None


def _raise_error(data: bytes) -> AttemptResult:
    try:
        fields = from_json(data)
        error = AttemptError(str(fields.pop("error_class")), str(fields.pop("error")), **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise PieceError("the error of an attempt can't be read") from None
    raise error


def _counts(data: bytes) -> tuple[int, int]:
    try:
        prompt, completion = from_json(data)
        return max(0, int(prompt)), max(0, int(completion))
    except (ValueError, TypeError):
        raise PieceError("a number of tokens can't be read") from None


def _as_bytes(answer: object) -> bytes:
    if not isinstance(answer, bytes):
        raise PieceError(f"a {type(answer).__name__} was received in place of bytes")
    return answer


async def _answered(answer: Awaitable[T]) -> T:
    """Await an actor's answer.

    Raises:
        TimeoutError: There is none.
        Exception: What Ray raises.
    """
    async with asyncio.timeout(ANSWER_S):
        return await answer


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _lost(log: Path, node: str | None, error: Exception) -> AttemptError:
    """Return what the scheduler has to know about an attempt whose actor is gone."""
    text = f"the Ray actor on node {node} was lost or does not answer ({type(error).__name__})"
    end = LogEnd()
    with suppress(RunError, OSError):
        end = read_whole(log)
    return AttemptError("LostWorker", text, retryable=True, engine=node, usage=end.usage, run=end.run)


def _other_version(found: str | None) -> str:
    there = f"has version {found} of autogen-codeact" if found else "has no autogen-codeact, or another version of it"
    return f"it {there}, and this machine has {__version__}: install the same version on each node"


def _why_refused(error: Exception) -> str:
    """Return why an actor can't be made, without the traceback and the colours of Ray's message."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    if any(_FOREIGN.search(line) for line in lines):
        return f"{_other_version(None)} ({lines[-1]})"
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def _is_loss(error: BaseException) -> bool:
    """Return whether an error says that an actor is gone or can't be reached."""
    if isinstance(error, WorkerRestartedError | _CancelledByWorkerError | TimeoutError):
        return True
    lost = {"RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError", "RpcError", "GetTimeoutError"}
    return bool(_kinds(error) & lost)
