"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from typing import Any

from autogen_codeact.batch.errors import BatchBackendError
from autogen_codeact.sandbox.types.filenames import printable

logger = logging.getLogger("autogen_codeact")

MISSING = "Ray is an extra: pip install 'autogen-codeact[ray]'"
PROBE_S = 5.0
CONNECT_S = 60.0
STOP_S = 30.0
# What a client of HTTP/2, which Ray's servers speak, says first; the server answers with a frame of settings (type 4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME = 9


def load_ray() -> Any:
    """Import Ray.

    Raises:
        BatchBackendError: It is not installed.
    """
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise BatchBackendError(MISSING) from error


class Cluster:
    """The cluster that this process is connected to; if it was already, that connection is used and stays.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names or that runs on this machine. None: start Ray here, for this
            batch. Or "host:port".
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._leave: threading.Event | None = None
        self._left: Future[None] = Future()
        self._print: Callable[..., None] | None = None
        self.ray: Any = None

    async def connect(self) -> None:
        """Connect.

        Raises:
            BatchBackendError: There is no cluster, it does not answer, or it has other versions of Ray or Python.
        """
        address = _checked(self._address)
        self.ray = load_ray()
        if self.ray.is_initialized():
            return
        if address == "auto":
            address = _checked(await asyncio.to_thread(_running_cluster))
        if address is not None and not os.environ.get("RAY_USE_TLS"):
            # Ray itself tries for minutes, and then ends the whole process.
            await _within(2 * PROBE_S, _in_daemon_thread(probe, address))
        # Processes that Ray starts end with the thread that has started them.
        connected: Future[None] = Future()
        self._leave, self._left = threading.Event(), Future()
        leaving = _in_daemon_thread(self._stay, address, connected, self._leave)
        leaving.add_done_callback(lambda _: self._left.set_result(None))
        await _within(CONNECT_S, connected)

    def _stay(self, address: str | None, connected: Future[None], leave: threading.Event) -> None:
        try:
            self._init(address)
        except BaseException as error:  # noqa: BLE001 - it is raised in the event loop
            connected.set_exception(error)
            return
        connected.set_result(None)
        leave.wait()
        self.ray.shutdown()

    def _init(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
            options["include_dashboard"] = False
        try:
            self.ray.init(address=address or "local", **options)
        except Exception as error:
            shown = printable(str(error))
            raise BatchBackendError(f"Ray can't be used at {address or 'this machine'}: {shown}") from error
        self._hold_back_output()

    def _hold_back_output(self) -> None:
        """Log what Ray would print to standard output: the ends of logs of its processes, as they are."""
        worker = import_module("ray._private.worker")
        self._print = getattr(worker, "print_to_stdstream", None)
        if self._print is not None:
            worker.print_to_stdstream = _log_output  # type: ignore[attr-defined]

    async def disconnect(self) -> None:
        """End the connection, if it was made here, and Ray, if it was started here."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave.set()
            await _within(STOP_S, self._left)
            if self._print is not None:
                import_module("ray._private.worker").print_to_stdstream = self._print  # type: ignore[attr-defined]


def _running_cluster() -> str:
    """Return the address of the cluster that RAY_ADDRESS names or that runs on this machine.

    Raises:
        BatchBackendError: There is none.
    """
    try:
        found = import_module("ray._private.services").canonicalize_bootstrap_address("auto")
    except (ConnectionError, ValueError) as error:
        raise BatchBackendError(f"Ray can't be used at auto: {printable(str(error))}") from error
    return str(found)


def _log_output(data: Any, *_: Any, **__: Any) -> None:
    with suppress(Exception):
        logger.debug("Ray: %s", printable("\n".join(data["lines"])[:4000]))


def _checked(address: str | None) -> str | None:
    if address is None or address == "auto":
        return address
    if address.startswith("ray://"):
        raise BatchBackendError(
            f"{printable(address)} is an address of Ray Client. Run the batch on a node of the cluster, with "
            "'auto' or the address that `ray start --head` prints, such as 'host:6379'."
        )
    host, found, port = address.rpartition(":")
    if not (found and host and port.isdecimal() and 0 < int(port) < 65536):
        raise BatchBackendError(
            f"{printable(address)!r} is not an address of a Ray cluster: give 'auto', or 'host:port' as `ray start --head` "
            "prints it."
        )
    return address


def probe(address: str) -> None:
    """Check that a server of Ray's kind answers.

    Raises:
        BatchBackendError: None does.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S) as connection:
            connection.sendall(_HELLO)
            answer = b""
            while len(answer) < _FRAME and (received := connection.recv(_FRAME - len(answer))):
                answer += received
    except (OSError, ValueError) as error:
        reason = "it does not answer" if isinstance(error, TimeoutError) else str(error)
        raise BatchBackendError(
            f"There is no Ray cluster at {printable(address)}: {reason}. `ray status --address {printable(address)}` on "
            "that machine says whether it runs."
        ) from error
    if len(answer) < _FRAME or answer[3] != 4:
        raise BatchBackendError(f"What answers at {printable(address)} is not Ray: give the address of its head node.")


def _in_daemon_thread(work: Callable[..., None], *arguments: Any) -> Future[None]:
    """Run a function that may never return; the process can end nevertheless."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="ray-connection", daemon=True).start()
    return done


async def _within(seconds: float, done: Future[None]) -> None:
    """Wait for the work of a thread.

    Raises:
        BatchBackendError: It takes too long.
        Exception: What it raised.
    """
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wrap_future(done)
    except TimeoutError:
        raise BatchBackendError(f"Ray did not answer within {seconds:g} s.") from None
