"""Attempts in the actors of a Ray cluster, with their logs in the driver's folder."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptWork, prepare
from autogen_codeact.batch.backend import BatchContext
from autogen_codeact.batch.errors import AttemptError, BatchBackendError, BatchBudgetError
from autogen_codeact.batch.limits import ModelGate
from autogen_codeact.batch.ray.cluster import Connection, connect
from autogen_codeact.batch.ray.folders import FolderChanges, FolderCopy, Sent
from autogen_codeact.batch.ray.worker import RayWorker, WorkerRestartedError
from autogen_codeact.batch.rows import Row
from autogen_codeact.batch.run_end import LogEnd, read_whole
from autogen_codeact.batch.uncancelled import run_uncancelled
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.writer import LogLocked
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.filenames import printable

logger = logging.getLogger("autogen_codeact")

TASKS_PER_ACTOR = 4
ANSWER_S = 120.0
"""Seconds without a word of an attempt, after which its actor counts as lost."""
CANCEL_S = 20.0
STOP_S = 40.0
REVIVE_S = 1.0
_LOST = {"RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError", "RpcError", "GetTimeoutError"}


class Ray:
    """Runs the attempts of a batch in Ray actors, each with a pool of sandboxes on its node.

    Where actors are placed, what they get, and that they are made again elsewhere when a node is lost, is Ray's. The
    installation of this package, and what the sandboxes need, has to be on each node: see docs/scaling.md.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names or that runs on this machine. None: start Ray on this machine, for
            this batch. Or "host:port" of the head node.
        actors: How many. Default: one for each four tasks of the batch's `concurrency`.
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
        actor_options: Mapping[str, Any] | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        for name, value in (("actors", actors), ("start_timeout", start_timeout)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} has to be positive, not {value!r}")
        self._address = address
        self._wanted = actors
        self._options = {"num_cpus": 1, "max_restarts": -1, "scheduling_strategy": "SPREAD", **(actor_options or {})}
        self._options["max_task_retries"] = 0  # what is done again, and when, is the batch's
        self._start_timeout = start_timeout
        self._connection: Connection | None = None
        self._actors: list[Any] = []
        self._places = 0
        self._gate: ModelGate
        self._setup = b""
        self._seats: asyncio.Queue[tuple[Any, str] | None]
        """Places for an attempt: the handle of an actor that is ready, and its node. None: there will be none."""
        self._refused: list[str] = []
        self._offers: set[asyncio.Task[None]] = set()

    async def start(self, context: BatchContext) -> None:
        """Connect, and make the actors; returns when one of them is ready.

        Raises:
            BatchBackendError: There is no cluster, or none of its actors can be used; the message says why.
        """
        self._connection = connection = await connect(self._address)
        ray, concurrency = connection.ray, context.settings.concurrency
        count = self._wanted or math.ceil(concurrency / TASKS_PER_ACTOR)
        share = math.ceil(concurrency / count)
        self._gate, self._seats = context.gate, asyncio.Queue()
        self._setup = _pickled(ray, context, count, share)
        try:
            actor = ray.remote(RayWorker).options(**self._options)
            self._actors = [actor.remote() for _ in range(count)]
        except (TypeError, ValueError) as error:
            raise BatchBackendError(f"actor_options: {error}") from error
        self._places = count * share
        for each in self._actors * share:
            self._offer(each)
        try:
            async with asyncio.timeout(self._start_timeout):
                self._seats.put_nowait(await self._seat())
        except TimeoutError:
            needed = {
                name: self._options[name] for name in ("num_cpus", "num_gpus", "resources") if name in self._options
            }
            raise BatchBackendError(
                f"no Ray actor was ready within {self._start_timeout:g} s. Each has the options {needed}, and the cluster has "
                f"{ray.cluster_resources()}: change actor_options=, or give a longer start_timeout= if nodes are being added."
            ) from None

    async def run(self, work: AttemptWork) -> Row:
        """Run one attempt in an actor that is ready.

        Raises:
            AttemptError: It has failed, or its actor was lost.
            BatchBudgetError: The budget is used up.
        """
        (actor, node), key = await self._seat(), uuid.uuid4().hex
        running = asyncio.create_task(_exchange(actor, key, work, self._gate), name=f"ray-{work.task.id}")
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await run_uncancelled(_cancel(actor, key, running))
            raise
        except Exception as error:
            cause = getattr(error, "cause", None)  # of an error that Ray has brought from the worker
            if isinstance(cause, AttemptError | BatchBudgetError):
                raise cause from None
            if not _is_loss(error):
                raise
            raise await in_thread(_lost, work.log, node, error) from error
        finally:
            self._offer(actor)

    async def _seat(self) -> tuple[Any, str]:
        if (seat := await self._seats.get()) is None:
            self._seats.put_nowait(None)
            raise BatchBackendError(f"no Ray actor can be used: {self._refused[0]}")
        return seat

    def _offer(self, actor: Any) -> None:
        """Make a place for an attempt when an actor is ready: at first, after an attempt, after Ray has made it again."""
        task = asyncio.create_task(self._wait_for(actor), name="ray-actor")
        self._offers.add(task)
        task.add_done_callback(self._offers.discard)

    async def _wait_for(self, actor: Any) -> None:
        node = refused = None
        while node is None and refused is None:
            try:
                # `make_agent` may hold a key: Ray keeps arguments of constructors in its tables, and those of calls nowhere.
                node, refused = await actor.ready.remote(__version__, self._setup)
            except Exception as error:  # noqa: BLE001 - Ray's, of many kinds
                if _kinds(error) & {"ActorDiedError", "ActorUnschedulableError"} or not _is_loss(error):
                    refused = _why_refused(error)
                else:
                    await asyncio.sleep(REVIVE_S)
        if refused is None:
            self._seats.put_nowait((actor, str(node)))
            return
        reason = printable(f"node {node}: {refused}" if node is not None else refused)[:2000]
        logger.warning("A Ray actor can't be used: %s", reason)
        self._refused.append(reason)
        if len(self._refused) == self._places:
            self._seats.put_nowait(None)

    async def stop(self) -> None:
        """End the actors with all that they run, and the connection; repeated calls are harmless."""
        for task in list(self._offers):
            task.cancel()
        actors, self._actors = self._actors, []
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if stops := [asyncio.ensure_future(actor.stop.remote()) for actor in actors]:
                await asyncio.wait(stops, timeout=STOP_S)
            for actor in actors:
                connection.ray.kill(actor, no_restart=True)
        finally:
            await connection.close()


async def _exchange(handle: Any, key: str, work: AttemptWork, gate: ModelGate) -> Row:
    """Send a worker what an attempt needs, and take what it has to say, up to its result."""
    permits: set[asyncio.Task[None]] = set()
    copy = FolderCopy(work.log, work.work_dir)
    try:
        await in_thread(prepare, work)
        given = await in_thread(lambda: list(FolderChanges(work.log, work.work_dir).take(whole=True)))
        stream = handle.run.options(num_returns="streaming").remote(key, work, *given)
        while True:
            async with asyncio.timeout(ANSWER_S):
                sent: Sent = await (await anext(stream))
            match sent.kind:
                case "result":
                    result: Row = sent.content
                    return result
                case "enter":
                    permits.add(asyncio.create_task(_permit(handle, key, gate)))
                case "used":
                    gate.used(*sent.content)
                case "log" | "files" | "work":
                    await in_thread(copy.write, sent)
    except (OSError, ValueError, LogLocked) as error:
        with suppress(Exception):
            async with asyncio.timeout(CANCEL_S):
                await handle.cancel.remote(key)
        if isinstance(error, TimeoutError):
            raise
        cause = getattr(error, "cause", error)  # of an error that Ray has brought from the worker
        raise AttemptError(type(cause).__name__, f"the files of the attempt: {cause}") from error
    finally:
        for task in permits:
            task.cancel()
        await in_thread(copy.close)


async def _permit(handle: Any, key: str, gate: ModelGate) -> None:
    refusal = None
    try:
        await gate.enter()
    except BatchBudgetError as error:
        refusal = str(error)
    with suppress(Exception):  # who takes what a lost actor sends notices that
        await handle.permit.remote(key, refusal)


async def _cancel(handle: Any, key: str, running: asyncio.Task[Row]) -> None:
    """Cancel an attempt, and take the rest of its log."""
    with suppress(Exception):
        async with asyncio.timeout(CANCEL_S):
            await handle.cancel.remote(key)
    await asyncio.wait({running}, timeout=CANCEL_S)
    running.cancel()
    await asyncio.wait({running}, timeout=CANCEL_S)
    if running.done() and not running.cancelled():
        running.exception()


def _pickled(ray: Any, context: BatchContext, actors: int, share: int) -> bytes:
    limit = context.sandboxes.max_sandboxes
    if limit is not None and limit < actors:
        raise BatchBackendError(f"max_sandboxes is {limit}, and there are {actors} actors: each needs at least one.")
    spec = replace(context.sandboxes, concurrency=share, max_sandboxes=limit // actors if limit is not None else None)
    try:
        setup: bytes = ray.cloudpickle.dumps((context.make_agent, spec, context.settings))
    except Exception as error:
        raise BatchBackendError(
            f"make_agent or an option of the sandboxes can't be sent to the Ray workers: {printable(str(error))}. Let "
            "make_agent open files, connections and model clients itself."
        ) from error
    return setup


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _is_loss(error: BaseException) -> bool:
    """Return whether an error says that an actor is gone, can't be reached, or has ended an attempt by itself."""
    return isinstance(error, WorkerRestartedError | StopAsyncIteration | TimeoutError) or bool(_kinds(error) & _LOST)


def _lost(log: Path, node: str | None, error: Exception) -> AttemptError:
    """Return what the scheduler has to know about an attempt whose actor is gone."""
    text = f"the Ray actor on node {node} was lost or does not answer ({type(error).__name__})"
    end = LogEnd()
    with suppress(RunError, OSError):
        end = read_whole(log)
    return AttemptError("LostWorker", text, retryable=True, engine=node, usage=end.usage, run=end.run)


def _why_refused(error: Exception) -> str:
    """Return why an actor can't be made: the last line of Ray's message, which is the cause behind a traceback."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    lines = str(error).strip().splitlines()
    advice = ". Install the same version of autogen-codeact on each node" if "autogen_codeact" in str(error) else ""
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason given'}{advice}"
