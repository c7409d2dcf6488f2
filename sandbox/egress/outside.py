"""From a name to a connection: looked up once, every address checked, and connected to exactly what was checked."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest

from autogen_codeact.sandbox.egress.addresses import Address
from autogen_codeact.sandbox.egress.hostnames import is_address, with_port
from autogen_codeact.sandbox.egress.policy import Policy, Refused, not_there

RESOLVE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
MOST_ADDRESSES = 4
Resolver = Callable[[str], Sequence[str]]
"""Finds the IP addresses of a name; it may block, and raises OSError where there are none."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def resolve_by_system(name: str) -> list[str]:
    """Ask this machine's resolver.

    Args:
        name: The name.

    Returns:
        Its IP addresses.

    Raises:
        OSError: It has none.
    """
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Outside:
    """The hosts that may be reached.

    Args:
        policy: Which these are.
        resolve: Finds addresses.
    """

    def __init__(self, policy: Policy, resolve: Resolver = resolve_by_system) -> None:
        self._policy = policy
        self._resolve = resolve

    async def connect(self, host: str, port: int) -> Streams:
        """Connect to a host.

        Args:
            host: Normalised.
            port: The port.

        Returns:
            The connection.

        Raises:
            Refused: The list does not allow it, or it can't be reached.
        """
        return await _connect_one_of(host, port, await self.addresses(host, port))

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Find the addresses of a host to connect to, all of them checked.

        Args:
            host: Normalised.
            port: The port.

        Returns:
            At least one and at most `MOST_ADDRESSES`, in the order in which to try them.

        Raises:
            Refused: The list does not allow it, or its address is not found.
        """
        # A name that is not on the list is not looked up either: the query itself would carry data out.
        self._policy.find(host, port)
        addresses = await self._resolve_name(host, port)
        self._policy.check_addresses(host, port, addresses)
        for address in addresses:
            if not self._policy.may_be_ours(host, port, address) and _is_ours(address):
                raise not_there(host, port, address, "is the host's own")
        return _alternating(addresses)[:MOST_ADDRESSES]

    async def _resolve_name(self, host: str, port: int) -> list[Address]:
        if is_address(host):
            return [ipaddress.ip_address(host)]
        where = with_port(host, port)
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = await _in_thread(self._resolve, host)
            addresses = [ipaddress.ip_address(text) for text in found]
        except TimeoutError:
            raise Refused(
                f"{where} can't be reached: its address was not found in {RESOLVE_TIMEOUT_S:g} s", 504
            ) from None
        except (OSError, ValueError, UnicodeError) as error:
            raise Refused(f"{where} can't be reached: its address was not found ({_short(error)})", 502) from None
        if not addresses:
            raise Refused(f"{where} can't be reached: it has no address", 502)
        return addresses


async def _in_thread(resolve: Resolver, host: str) -> Sequence[str]:
    """Call a resolver without ever having to wait for it; asyncio's own threads are waited for at the end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(result: Sequence[str] | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result or ())

    def run() -> None:
        result: Sequence[str] | None = None
        problem: Exception | None = None
        try:
            result = resolve(host)
        except Exception as error:  # noqa: BLE001 - a resolver may be the user's own
            problem = error if isinstance(error, OSError | ValueError) else OSError(repr(error))
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name="codeact-resolve", daemon=True).start()
    return await future


async def _connect_one_of(host: str, port: int, addresses: Sequence[Address]) -> Streams:
    """Try the addresses one after the other."""
    problem: Exception = TimeoutError()
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S / len(addresses)):
                reader, writer = await asyncio.open_connection(str(address), port)
        except OSError as error:
            problem = error
            continue
        # So that draining means having sent, and not just a little left.
        writer.transport.set_write_buffer_limits(0)
        return reader, writer
    where = with_port(host, port)
    if isinstance(problem, TimeoutError):
        raise Refused(f"{where} can't be reached: no connection within {CONNECT_TIMEOUT_S:g} s", 504)
    raise Refused(f"{where} can't be reached: {_short(problem)}", 502)


def _alternating(addresses: Sequence[Address]) -> list[Address]:
    """Both kinds of addresses in turn, so that many of a kind that does not work here don't hide the other."""
    kinds = [[each for each in addresses if each.version == version] for version in (6, 4)]
    if addresses and addresses[0].version == 4:
        kinds.reverse()
    return [each for pair in zip_longest(*kinds) for each in pair if each is not None]


def _short(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


def _is_ours(address: Address) -> bool:
    """Whether it is an address of this machine: what would be sent there would come from there."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))  # which sends nothing
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False
