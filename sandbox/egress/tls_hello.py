"""The first message of a TLS client, read for the name of the server that it wants."""

from __future__ import annotations

from dataclasses import dataclass

from autogen_codeact.sandbox.egress.hostnames import normalise

MOST_BYTES = 64 * 1024
_HEADER = 5
_MOST_RECORD = 16384
_CHANGE_CIPHER_SPEC, _HANDSHAKE = 20, 22
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_SERVER_NAME = 0
# SHA-256 of "HelloRetryRequest": the random value by which a server asks for a second hello (RFC 8446, 4.1.3).
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RETRY_ENDS = _HEADER + 4 + 2 + len(_RETRY)
UNRECOGNISED_NAME = bytes([21, 3, 3, 0, 2, 2, 112])
"""A fatal alert: the record that tells a client that its server name will not do."""


class NotTls(ValueError):
    """What came is no well-formed hello; the message says why."""


@dataclass(frozen=True)
class Hello:
    """A client's hello.

    Args:
        server_name: The name in it, normalised, or None where there is none.
        size: Bytes of the records that it fills.
    """

    server_name: str | None
    size: int


def read_hello(data: bytes, *, again: bool = False) -> Hello | None:
    """Find the hello at the beginning of what a client has sent.

    Args:
        data: All that has come so far.
        again: Whether it is the second one, before which a client may say that it changes its cipher.

    Returns:
        The hello, or None where more has to come first.

    Raises:
        NotTls: It is none, is larger than `MOST_BYTES`, or holds anything else behind it.
    """
    message = bytearray()
    at = 0
    while len(data) - at >= _HEADER:
        kind, major, size = data[at], data[at + 1], int.from_bytes(data[at + 3 : at + 5])
        if again and kind == _CHANGE_CIPHER_SPEC and not message and size == 1:
            if len(data) - at < _HEADER + 1:
                return None
            at += _HEADER + 1
            continue
        if kind != _HANDSHAKE or major != 3 or not 0 < size <= _MOST_RECORD:
            raise NotTls("what came through the tunnel is not TLS")
        if len(data) - at < _HEADER + size:
            break
        message += data[at + _HEADER : at + _HEADER + size]
        at += _HEADER + size
        if message[0] != _CLIENT_HELLO:
            raise NotTls("the first message through the tunnel is not a client's hello")
        whole = 4 + int.from_bytes(message[1:4]) if len(message) >= 4 else MOST_BYTES
        if whole > MOST_BYTES or len(message) > whole:
            raise NotTls("the client's hello is too long")
        if len(message) == whole:
            return Hello(_server_name(bytes(message[4:])), at)
    if len(data) > MOST_BYTES:
        raise NotTls("the client's hello is too long")
    if data and data[0] not in (_HANDSHAKE, _CHANGE_CIPHER_SPEC if again else _HANDSHAKE):
        raise NotTls("what came through the tunnel is not TLS")
    return None


def first_record(data: bytes) -> int:
    """How many bytes the first record has, by what is known of it; 1 where that is nothing, 0 where it is no handshake."""
    if data and data[0] != _HANDSHAKE:
        return 0
    return _HEADER + int.from_bytes(data[3:_HEADER]) if len(data) >= _HEADER else len(data) + 1


def asks_again(data: bytes) -> bool:
    """Whether a server's first message asks the client for a second hello."""
    return (
        len(data) >= _RETRY_ENDS
        and data[0] == _HANDSHAKE
        and data[_HEADER] == _SERVER_HELLO
        and data[_RETRY_ENDS - len(_RETRY) : _RETRY_ENDS] == _RETRY
    )


class _Reader:
    """Takes vectors off the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        """That many bytes."""
        if len(self.data) < size:
            raise NotTls("the client's hello is cut off")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def vector(self, width: int) -> bytes:
        """What follows a length of that many bytes."""
        return self.take(int.from_bytes(self.take(width)))


def _server_name(body: bytes) -> str | None:
    reader = _Reader(body)
    reader.take(2 + 32)
    for width in (1, 2, 1):  # session, cipher suites, compression methods
        reader.vector(width)
    if not reader.data:
        return None
    extensions = _Reader(reader.vector(2))
    if reader.data:
        raise NotTls("the client's hello has something behind its extensions")
    found: list[bytes] = []
    while extensions.data:
        kind = int.from_bytes(extensions.take(2))
        content = extensions.vector(2)
        if kind == _SERVER_NAME:
            found.append(content)
    if len(found) > 1:
        raise NotTls("the client's hello names its server twice")
    return _only_name(found[0]) if found else None


def _only_name(extension: bytes) -> str:
    reader = _Reader(extension)
    names = _Reader(reader.vector(2))
    kind = names.take(1)[0]
    name = names.vector(2)
    if reader.data or names.data or kind != 0:
        raise NotTls("the client's hello has not one server name but several")
    try:
        return normalise(name.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        raise NotTls("the server name in the client's hello is not the name of a host") from None
