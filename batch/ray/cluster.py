"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """Connect to the cluster, and yield Ray's module; if this process is connected already, that connection is used and stays."""
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise BatchBackendError("Ray is an extra: pip install 'autogen-codeact[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    if address == "auto":
        address = await _within(CONNECT_S, _running_cluster)
    await _probe(address)  # Ray itself tries for minutes, and then ends the whole process
    await _within(CONNECT_S, _init, ray, address)
    try:
        yield ray
    finally:
        await _within(STOP_S, ray.shutdown)


async def _within(seconds: float, work: Any, *arguments: Any) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.to_thread(work, *arguments)
    except TimeoutError:
        raise BatchBackendError(f"Ray did not answer within {seconds:g} s.") from None
    except Exception as error:
        raise BatchBackendError(f"Ray can't be used: {printable(str(error))}") from error


def _init(ray: Any, address: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    # It would print the ends of logs of its processes to standard output, as they are.
    worker: Any = import_module("ray._private.worker")
    worker.print_to_stdstream = lambda data, **_: logger.debug("Ray: %s", printable("\n".join(data["lines"])[:4000]))


def _running_cluster() -> str:
    return str(import_module("ray._private.services").canonicalize_bootstrap_address("auto"))


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
