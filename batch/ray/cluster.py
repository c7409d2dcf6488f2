"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any

from autogen_codeact.batch.errors import BatchBackendError
from codeact_sandbox.types.filenames import printable

logger = logging.getLogger("autogen_codeact")

PROBE_S = 5.0
CONNECT_S = 60.0
STOP_S = 30.0
# What a client of HTTP/2, which Ray's servers speak, says first; the server answers with a frame of settings (type 4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME = 9


class Connection:
    """A connection that was made here, or before; made by `connect`."""

    def __init__(self, ray: Any, thread: ThreadPoolExecutor | None = None) -> None:
        self.ray = ray
        self._thread = thread

    async def close(self) -> None:
        """End it, and Ray, if they were begun here."""
        if self._thread is not None:
            await _within(STOP_S, self._thread, self.ray.shutdown)
            self._thread.shutdown(wait=False)


async def connect(address: str | None) -> Connection:
    """Connect to the cluster; if this process is connected already, that connection is used and stays."""
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise BatchBackendError("Ray is an extra: pip install 'autogen-codeact[ray]'") from error
    if ray.is_initialized():
        return Connection(ray)
    thread = ThreadPoolExecutor(1, "ray-connection")
    try:
        if address == "auto":
            address = await _within(CONNECT_S, thread, _running_cluster)
        if address is not None:
            await _probe(address)  # Ray itself tries for minutes, and then ends the whole process
        await _within(CONNECT_S, thread, _init, ray, address)
    except BaseException:
        thread.shutdown(wait=False)
        raise
    return Connection(ray, thread)


async def _within(seconds: float, thread: ThreadPoolExecutor, work: Any, *arguments: Any) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)
    except TimeoutError:
        raise BatchBackendError(f"Ray did not answer within {seconds:g} s.") from None


def _init(ray: Any, address: str | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
        options["include_dashboard"] = False
    try:
        ray.init(address=address or "local", **options)
    except Exception as error:
        shown = printable(str(error))
        raise BatchBackendError(f"Ray can't be used at {address or 'this machine'}: {shown}") from error
    # It would print the ends of logs of its processes to standard output, as they are.
    worker: Any = import_module("ray._private.worker")
    worker.print_to_stdstream = _log_output


def _log_output(data: Any, *_: Any, **__: Any) -> None:
    with suppress(Exception):
        logger.debug("Ray: %s", printable("\n".join(data["lines"])[:4000]))


def _running_cluster() -> str:
    try:
        return str(import_module("ray._private.services").canonicalize_bootstrap_address("auto"))
    except (ConnectionError, ValueError) as error:
        raise BatchBackendError(f"Ray can't be used at auto: {printable(str(error))}") from error


async def _probe(address: str) -> None:
    """Check that a server of Ray's kind answers."""
    shown, answer = printable(address), b""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal() or int(port) > 65535:
        raise BatchBackendError(
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
        raise BatchBackendError(
            f"There is no Ray cluster at {shown}: {reason}. `ray status --address {shown}` on that machine says whether it runs."
        ) from error
    if len(answer) < _FRAME or answer[3] != 4:
        raise BatchBackendError(f"What answers at {shown} is not Ray: give the address of its head node.")
