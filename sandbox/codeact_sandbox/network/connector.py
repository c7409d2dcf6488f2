"""Connections to allowed hosts: a name is looked up once, all its addresses are checked, and only these are connected to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence

from codeact_sandbox.host.threads import Threads
from codeact_sandbox.types.allowed_domains import Policy, Refused, address_refused
from codeact_sandbox.types.host_names import Address, is_address, with_port

RESOLVE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
MAX_ADDRESSES = 4
# Threads that look up names for one sandbox at the same time. Abandoned lookups go on until the name is found.
MAX_THREADS = 64
# Finds the IP addresses of a name; it may block, and raises OSError if there are none.
Resolver = Callable[[str], Sequence[str]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def resolve_by_system(name: str) -> list[str]:
    """Return the IP addresses of a name, by this machine's resolver; raise an OSError if it has none."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Connector:
    def __init__(self, policy: Policy, resolve: Resolver = resolve_by_system) -> None:
        self._policy = policy
        self._resolve = resolve
        self._threads = Threads(MAX_THREADS, name="codeact-resolve")

    async def connect(self, host: str, port: int) -> Streams:
        addresses = await self.addresses(host, port)
        problem: Exception = TimeoutError()
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S / len(addresses)):
                    reader, writer = await asyncio.open_connection(str(address), port)
            except OSError as error:
                problem = error
                continue
            # So that `drain` returns when everything has been sent.
            writer.transport.set_write_buffer_limits(0)
            return reader, writer
        if isinstance(problem, TimeoutError):
            raise _unreachable(host, port, f"no connection within {CONNECT_TIMEOUT_S:g} s", 504)
        raise _unreachable(host, port, _short(problem))

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Return the addresses to connect to, at most `MAX_ADDRESSES`, in their order; raise `Refused` if one is not allowed."""
        # A name that is not on the list is not looked up either: the query itself would carry data out.
        self._policy.find(host, port)
        addresses = await look_up(self._resolve, host, port, self._threads)
        self._policy.check_addresses(host, port, addresses)
        for address in addresses:
            if not self._policy.names_network_of(host, port, address) and is_own_address(address):
                raise address_refused(host, port, address, "is the host's own")
        return addresses[:MAX_ADDRESSES]


async def look_up(resolve: Resolver, host: str, port: int, threads: Threads) -> list[Address]:
    """Find the addresses of a host; they are not checked."""
    if is_address(host):
        return [ipaddress.ip_address(host)]
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            addresses = [ipaddress.ip_address(text) for text in await threads.run(lambda: resolve(host))]
    except TimeoutError:
        raise _unreachable(host, port, f"its address was not found in {RESOLVE_TIMEOUT_S:g} s", 504) from None
    except Exception as error:  # noqa: BLE001 - a resolver may be the user's own
        raise _unreachable(host, port, f"its address was not found ({_short(error)})") from None
    if not addresses:
        raise _unreachable(host, port, "it has no address")
    return addresses


def is_own_address(address: Address) -> bool:
    """Whether it is an address of this machine: then what is sent there would come from there."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))  # which sends nothing
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False


def _unreachable(host: str, port: int, reason: str, status: int = 502) -> Refused:
    return Refused(f"{with_port(host, port)} can't be reached: {reason}", status)


def _short(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__
