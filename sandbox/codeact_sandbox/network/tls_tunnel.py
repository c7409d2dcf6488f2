"""CONNECT: a tunnel for TLS, whose client hello must name the host that the tunnel leads to."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from functools import cache

from codeact_sandbox.network.channels import IDLE_S, PIECE, Channel, from_sandbox, relay, to_sandbox
from codeact_sandbox.network.connector import Streams
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.host_names import is_address, normalise, with_port

HELLO_LIMIT = 64 * 1024
HELLO_TIMEOUT_S = 10.0
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# The TLS record of a fatal alert: the client's server name is refused.
UNRECOGNIZED_NAME = bytes([21, 3, 3, 0, 2, 2, ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME])
_HANDSHAKE = 22
_VERSION_MAJOR = 3
_CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"
_RECORD_HEADER = 5
_MESSAGE_HEADER = 4
# The random value by which a server requests a second client hello, and where it stands (RFC 8446, 4.1.3).
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RETRY_BEGINS = _RECORD_HEADER + _MESSAGE_HEADER + 2
_RETRY_ENDS = _RETRY_BEGINS + len(_RETRY)
# A server name extension: its length, that of its list, and that of the name. OpenSSL refuses names of more than 255 bytes.
_NAME_EXTENSION = re.compile(rb"(?=\0\0([\0\1].)([\0\1].)\0(\0[^\0]))", re.DOTALL)


class NotTls(ValueError):
    """The client did not send a well-formed hello; the message says why."""


class TunnelRefused(Refused):
    """A tunnel that is closed after it was established, so that HTTP can't carry the reason any more."""


async def tunnel(channel: Channel, host: str, port: int, streams: Streams) -> None:
    """Establish a tunnel, check the server name of its TLS, and pass bytes on."""
    reader, writer = streams
    await channel.write(ESTABLISHED)
    writer.write(await read_hello(channel, host, port))
    await writer.drain()
    answer = await _read_answer(reader)
    await channel.write(answer)
    if is_hello_retry_request(answer):
        # The second hello has a name, too, and the server uses that one.
        writer.write(await read_hello(channel, host, port, second=True))
        await writer.drain()
    await relay(channel, from_sandbox(channel, writer), to_sandbox(channel, reader))


async def read_hello(channel: Channel, host: str, port: int, *, second: bool = False) -> bytes:
    """Read a client hello and check that it is for the host."""
    closed = f"the tunnel to {with_port(host, port)} was closed"
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            records, name = await read_client_hello(channel.read_exactly, second=second)
    except asyncio.IncompleteReadError:
        raise TunnelRefused(f"{closed} before its TLS began", 499) from None
    except TimeoutError:
        raise TunnelRefused(f"{closed}: no TLS began within {HELLO_TIMEOUT_S:g} s", 408) from None
    except NotTls as error:
        raise TunnelRefused(f"{closed}: {error}") from None
    # Clients name no server when they connect to an address.
    if name != host and not (name is None and is_address(host)):
        found = "names no server" if name is None else f"is for {name}"
        raise TunnelRefused(f"{closed}: the TLS in it {found}; it must name the host of the tunnel")
    return records


async def read_client_hello(
    read_exactly: Callable[[int], Awaitable[bytes]], *, second: bool = False
) -> tuple[bytes, str | None]:
    records, message = bytearray(), bytearray()
    prefix = b""
    missing = _MESSAGE_HEADER
    while missing > 0:
        header = await read_exactly(_RECORD_HEADER)
        if second and not (records or prefix) and header == _CHANGE_CIPHER_SPEC[:_RECORD_HEADER]:
            prefix = header + await read_exactly(1)
            continue
        if header[0] != _HANDSHAKE or header[1] != _VERSION_MAJOR:
            raise NotTls("what came through the tunnel is not TLS")
        body = await read_exactly(int.from_bytes(header[3:]))
        records += header + body
        message += body
        missing = _MESSAGE_HEADER + int.from_bytes(message[1:_MESSAGE_HEADER]) - len(message)
        if len(records) + missing > HELLO_LIMIT:
            raise NotTls("the client's hello is too long")
    if missing < 0:
        raise NotTls("the client's hello is followed by other data")
    if _has_non_ascii_name(message):
        raise _bad_name()
    return prefix + records, _server_name(records)


class _Handshake(ssl.SSLObject):
    """The server's end of a TLS handshake that is aborted when it has read the client hello."""

    complete = False
    server_name: str | None = None


def _on_server_name(handshake: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
    assert isinstance(handshake, _Handshake)
    handshake.complete, handshake.server_name = True, name
    return ssl.AlertDescription.ALERT_DESCRIPTION_USER_CANCELLED


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Whether a protocol is too old is the decision of the real server.
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.sslobject_class = _Handshake
    context.sni_callback = _on_server_name
    return context


def _server_name(records: bytes | bytearray) -> str | None:
    """Return the server name in the records of a client hello, normalised, or None if there is none."""
    incoming = ssl.MemoryBIO()
    incoming.write(records)
    handshake = _context().wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    assert isinstance(handshake, _Handshake)
    try:
        handshake.do_handshake()
    except ssl.SSLError as error:
        if not handshake.complete:
            reason = (error.reason or "incomplete").replace("_", " ").lower()
            raise NotTls(f"the client's hello is malformed ({reason})") from None
    try:
        return None if handshake.server_name is None else normalise(handshake.server_name)
    except ValueError:
        raise _bad_name() from None


def _bad_name() -> NotTls:
    return NotTls("the server name in the client's hello is not the name of a host")


def _has_non_ascii_name(message: bytearray) -> bool:
    # Python prints an error when it can't decode a name for the callback: code in the sandbox must not cause that.
    for match in _NAME_EXTENSION.finditer(message):
        size, of_list, of_name = map(int.from_bytes, match.groups())
        if (
            size - 5 == of_list - 3 == of_name
            and not message[match.start() + 9 : match.start() + 9 + of_name].isascii()
        ):
            return True
    return False


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read as much of what the server sends as shows whether it requests a second hello; all of such a request."""
    answer = b""
    async with asyncio.timeout(IDLE_S):
        while len(answer) < _needed_bytes(answer):
            more = await reader.read(PIECE)
            if not more:
                break
            answer += more
    return answer


def _needed_bytes(answer: bytes) -> int:
    if answer and answer[0] != _HANDSHAKE:
        return 0
    return _RECORD_HEADER + int.from_bytes(answer[3:_RECORD_HEADER]) if is_hello_retry_request(answer) else _RETRY_ENDS


def is_hello_retry_request(answer: bytes) -> bool:
    """Whether a server's first record requests a second client hello."""
    return answer[:1] == bytes([_HANDSHAKE]) and answer[_RETRY_BEGINS:_RETRY_ENDS] == _RETRY
