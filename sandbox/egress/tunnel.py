"""CONNECT: a tunnel for TLS, whose hello must name the host that the tunnel leads to."""

from __future__ import annotations

import asyncio

from autogen_codeact.sandbox.egress.asked import Asked
from autogen_codeact.sandbox.egress.channel import PIECE, Channel
from autogen_codeact.sandbox.egress.hostnames import is_address
from autogen_codeact.sandbox.egress.outside import Streams
from autogen_codeact.sandbox.egress.policy import Refused
from autogen_codeact.sandbox.egress.relay import IDLE_S, relay
from autogen_codeact.sandbox.egress.tls_hello import NotTls, asks_again, first_record, read_hello

HELLO_TIMEOUT_S = 10.0
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class TunnelRefused(Refused):
    """A tunnel that is closed after it has been granted: HTTP can't say so any more."""


async def tunnel(channel: Channel, asked: Asked, streams: Streams, early: bytes) -> None:
    """Grant a tunnel, see where its TLS is meant to go, and pass bytes on.

    Args:
        channel: The sandbox's side.
        asked: The request.
        streams: The host's side, connected.
        early: What the client sent behind its request.

    Raises:
        TunnelRefused: It does not begin with a hello for that host.
    """
    reader, writer = streams
    await channel.write(ESTABLISHED)
    rest = await _pass_hello(channel, asked, writer, early, again=False)
    answer = await _first_of(reader)
    await channel.write(answer)
    if asks_again(answer):
        # The second hello has a name, too, and the server goes by that one.
        rest = await _pass_hello(channel, asked, writer, rest, again=True)
    await relay(channel, streams, rest)


async def _pass_hello(
    channel: Channel, asked: Asked, writer: asyncio.StreamWriter, data: bytes, *, again: bool
) -> bytes:
    """Read a hello, check it, and send it on; gives what came behind it."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            while (hello := read_hello(data, again=again)) is None:
                more = await channel.read()
                if not more:
                    raise TunnelRefused(f"the tunnel to {asked.where} was closed before its TLS began", 499)
                data += more
    except NotTls as error:
        raise TunnelRefused(f"the tunnel to {asked.where} was closed: {error}") from None
    except TimeoutError:
        raise TunnelRefused(
            f"the tunnel to {asked.where} was closed: no TLS began within {HELLO_TIMEOUT_S:g} s", 408
        ) from None
    _check_name(asked, hello.server_name)
    writer.write(data[: hello.size])
    await writer.drain()
    return data[hello.size :]


def _check_name(asked: Asked, name: str | None) -> None:
    # Clients name no server when they connect to an address.
    if name == asked.host or (name is None and is_address(asked.host)):
        return
    said = "names no server" if name is None else f"is for {name}"
    raise TunnelRefused(
        f"the tunnel to {asked.where} was closed: the TLS in it {said}; it must name the host of the tunnel"
    )


async def _first_of(reader: asyncio.StreamReader) -> bytes:
    """The server's first record, or what it says instead; what the client sends meanwhile waits."""
    data = b""
    async with asyncio.timeout(IDLE_S):
        while len(data) < first_record(data):
            more = await reader.read(PIECE)
            if not more:
                break
            data += more
    return data
