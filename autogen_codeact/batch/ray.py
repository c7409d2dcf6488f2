"""Attempts in the actors of a Ray cluster: the connection, and what the driver does.

Logs are in the driver's folder, and files are exchanged. Ray is imported when it is used.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import Any

from autogen_codeact import __version__
from autogen_codeact.batch.attempt import AttemptWork, BatchContext, prepare, read_log
from autogen_codeact.batch.errors import BatchError
from autogen_codeact.batch.ray_worker import Folders, RayWorker, Sent
from autogen_codeact.batch.results import AttemptError, Row
from autogen_codeact.batch.settings import ModelGate
from codeact_sandbox.host.waiting import in_thread, in_threads
from codeact_sandbox.types.filenames import printable

logger = logging.getLogger("autogen_codeact")

PROBE_S = 5.0
CONNECT_S = 60.0
SHUTDOWN_S = 30.0
# What a client of HTTP/2, which Ray's servers speak, says first; the server answers with a frame of settings (type 4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME = 9
TASKS_PER_ACTOR = 4
ANSWER_S = 120.0  # seconds without a word of an attempt, after which its actor counts as lost
STOP_S = 40.0
REVIVE_S = 1.0
_LOST = {"RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError", "RpcError", "GetTimeoutError"}
_GONE = {"ActorDiedError", "ActorUnschedulableError"}


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """Connect to the cluster, and yield Ray's module; if this process is connected already, that connection is used and stays."""
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise BatchError("Ray is an extra: pip install 'autogen-codeact[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    if address == "auto":
        services = import_module("ray._private.services")
        address = str(await _within(CONNECT_S, services.canonicalize_bootstrap_address, "auto"))
    await _probe(address)  # Ray itself tries for minutes, and then ends the whole process
    await _within(CONNECT_S, _init, ray, address)
    try:
        yield ray
    finally:
        await _within(SHUTDOWN_S, ray.shutdown)


async def _within(seconds: float, work: Any, *arguments: Any) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.to_thread(work, *arguments)
    except TimeoutError:
        raise BatchError(f"Ray did not answer within {seconds:g} s.") from None
    except Exception as error:
        raise BatchError(f"Ray can't be used: {printable(str(error))}") from error


def _init(ray: Any, address: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    # It would print the ends of logs of its processes to standard output, as they are.
    worker: Any = import_module("ray._private.worker")
    worker.print_to_stdstream = lambda data, **_: logger.debug("Ray: %s", printable("\n".join(data["lines"])[:4000]))


async def _probe(address: str) -> None:
    """Check that a server of Ray's kind answers."""
    shown, answer = printable(address), b""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal() or int(port) > 65535:
        raise BatchError(
            f"{shown!r} is not an address of a Ray cluster: give 'auto', or 'host:port' as `ray start --head` prints it, on a "
            "machine of the cluster."
        )
    if os.environ.get("RAY_USE_TLS"):
        return
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(_HELLO)
                answer = await reader.read(_FRAME)
            finally:
                writer.close()
    except OSError as error:
        reason = "it does not answer" if isinstance(error, TimeoutError) else str(error)
        raise BatchError(
            f"There is no Ray cluster at {shown}: {reason}. `ray status --address {shown}` on that machine says whether it runs."
        ) from error
    if len(answer) < _FRAME or answer[3] != 4:
        raise BatchError(f"What answers at {shown} is not Ray: give the address of its head node.")


class Ray:
    """Runs the attempts of a batch in Ray actors, each with a pool of sandboxes on its node.

    Where actors are placed, what they get, and that they are made again elsewhere when a node is lost, is Ray's. The
    installation of this package, and what the sandboxes need, has to be on each node: see docs/scaling.md.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names or that runs on this machine. Or "host:port" of the head node.
        actors: How many. Default: one for each four tasks of the batch's `concurrency`.
        actor_options: Options of the actors, such as `num_cpus`, `resources`, `max_restarts` or `runtime_env`. Default: one CPU
            each, spread over the nodes, made again without limit.
        start_timeout: Seconds to wait for an actor that is ready. Default 120.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        actors: int | None = None,
        actor_options: Mapping[str, Any] | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        if actors is not None and actors < 1:
            raise ValueError(f"actors has to be positive, not {actors!r}")
        self._address = address
        self._wanted = actors
        self._options = {"num_cpus": 1, "max_restarts": -1, "scheduling_strategy": "SPREAD", **(actor_options or {})}
        self._options["max_task_retries"] = 0  # what is done again, and when, is the batch's
        self._start_timeout = start_timeout
        self._opened = AsyncExitStack()
        self._gate: ModelGate
        self._setup = b""
        self._seats: asyncio.Queue[tuple[Any, str] | BatchError]
        """Places for an attempt: an actor that is ready, and its node; or why one can't be used."""
        self._offers: set[asyncio.Task[None]] = set()

    async def start(self, context: BatchContext) -> None:
        """Connect, and make the actors; returns when one of them is ready."""
        self._ray = ray = await self._opened.enter_async_context(connected(self._address))
        concurrency = context.settings.concurrency
        count = self._wanted or math.ceil(concurrency / TASKS_PER_ACTOR)
        share = math.ceil(concurrency / count)
        self._gate, self._seats = context.gate, asyncio.Queue()
        self._setup = _pickled(ray, context, share)
        actors = [ray.remote(RayWorker).options(**self._options).remote() for _ in range(count)]
        self._opened.push_async_callback(_stop, ray, actors)
        for each in actors * share:
            self._offer(each)
        try:
            async with asyncio.timeout(self._start_timeout):
                self._seats.put_nowait(await self._seats.get())
        except TimeoutError:
            shown = ("num_cpus", "num_gpus", "resources")  # others may hold secrets
            needed = {name: value for name, value in self._options.items() if name in shown}
            raise BatchError(
                f"no Ray actor was ready within {self._start_timeout:g} s. Each has the options {needed}, and the cluster has "
                f"{ray.cluster_resources()}: change actor_options=, or give a longer start_timeout= if nodes are being added."
            ) from None

    async def run(self, work: AttemptWork) -> Row:
        """Run one attempt in an actor that is ready."""
        seat = await self._seats.get()
        if isinstance(seat, BatchError):
            raise seat
        actor, node = seat
        try:
            return await self._exchange(actor, node, work)
        except Exception as error:
            cause = getattr(error, "cause", None)  # of an error that Ray has brought from the worker
            if isinstance(cause, AttemptError):
                cause.row.node = node
                raise cause from None
            if not _is_loss(error):
                raise
            raise await in_thread(_lost, work, node, error) from error
        finally:
            self._offer(actor)

    async def _exchange(self, actor: Any, node: str, work: AttemptWork) -> Row:
        """Send an actor what an attempt needs, and take what it has to say, up to its result."""
        folders = Folders(work.log, work.work_dir)
        await in_thread(prepare, work)
        parts = [await in_thread(self._ray.put, part) async for part in in_threads(folders.changes())]
        # With these options, the actor waits until what it has sent is taken.
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": 1}
        stream = actor.run.options(**options).remote(work, parts)
        try:
            while True:
                async with asyncio.timeout(ANSWER_S):
                    sent: Sent = await (await anext(stream))
                match sent.kind:
                    case "result":
                        row: Row = sent.content
                        row.node = node
                        return row
                    case "enter":
                        await self._gate.enter()
                    case "used":
                        self._gate.used(*sent.content)
                    case "files":
                        await in_thread(folders.write, sent.content)
        except BaseException:
            with suppress(Exception):
                self._ray.cancel(stream)
            raise

    def _offer(self, actor: Any) -> None:
        """Make a place for an attempt when an actor is ready: at first, after an attempt, after Ray has made it again."""
        task = asyncio.create_task(self._wait_for(actor), name="ray-actor")
        self._offers.add(task)
        task.add_done_callback(self._offers.discard)

    async def _wait_for(self, actor: Any) -> None:
        seat: tuple[Any, str] | BatchError | None = None
        while seat is None:
            try:
                # `make_agent` may hold a key: Ray keeps arguments of constructors in its tables, and those of calls nowhere.
                seat = actor, await actor.ready.remote(__version__, self._setup)
            except Exception as error:  # noqa: BLE001 - Ray's, of many kinds
                if _is_loss(error) and not _kinds(error) & _GONE:
                    await asyncio.sleep(REVIVE_S)
                else:
                    reason = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
                    seat = BatchError(
                        f"a Ray actor can't be used: {printable(reason)[:2000]}. Each node needs the same version of "
                        "autogen-codeact, and Docker or bubblewrap (docs/scaling.md)."
                    )
        self._seats.put_nowait(seat)

    async def stop(self) -> None:
        """End the actors with all that they run, and the connection; repeated calls are harmless."""
        for task in list(self._offers):
            task.cancel()
        await self._opened.aclose()


async def _stop(ray: Any, actors: list[Any]) -> None:
    await asyncio.wait([asyncio.ensure_future(actor.stop.remote()) for actor in actors], timeout=STOP_S)
    for actor in actors:
        ray.kill(actor, no_restart=True)


def _pickled(ray: Any, context: BatchContext, share: int) -> bytes:
    settings = context.settings.model_copy(update={"concurrency": share})
    try:
        setup: bytes = ray.cloudpickle.dumps((context.make_agent, context.kind, context.options, settings))
    except Exception as error:
        raise BatchError(
            f"make_agent or an option of the sandboxes can't be sent to the Ray workers: {printable(str(error))}. Let "
            "make_agent open files, connections and model clients itself."
        ) from error
    return setup


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _is_loss(error: BaseException) -> bool:
    """Return whether an error says that an actor is gone, can't be reached, or has ended an attempt by itself."""
    return isinstance(error, ConnectionResetError | StopAsyncIteration | TimeoutError) or bool(_kinds(error) & _LOST)


def _lost(work: AttemptWork, node: str, error: Exception) -> AttemptError:
    """Return what the scheduler has to know about an attempt whose actor is gone."""
    text = f"the Ray actor on node {node} was lost or does not answer ({type(error).__name__})"
    end = read_log(work.log)
    row = Row(id=work.task.id, repeat=work.repeat, outcome="failed", run=end.run, node=node, **end.usage)
    row.error_class, row.error = "LostWorker", text
    return AttemptError(row, retryable=True)
