"""What code in the sandbox asks its proxy for, read strictly: two readers must never see two different requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autogen_codeact.sandbox.egress.hostnames import normalise, shown, with_port
from autogen_codeact.sandbox.egress.policy import Refused

_FOLDED = re.compile(rb"\n[ \t]")
_BARE_BREAK = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_LINE = re.compile(rb"([A-Za-z]+) ([^ ]*) HTTP/1\.[01]")
_PORT = re.compile(r"[0-9]{1,5}")
_NAMES_LIMIT = 300


@dataclass(frozen=True)
class Asked:
    """A request for a connection.

    Args:
        tunnel: Whether it is CONNECT, for TLS; else plain HTTP.
        host: Normalised.
        port: The port.
        path: What is asked of the host; empty for a tunnel.
    """

    tunnel: bool
    host: str
    port: int
    path: bytes = b""

    @property
    def where(self) -> str:
        """Host and port."""
        return with_port(self.host, self.port)


def misunderstood(why: str) -> Refused:
    """What to raise when a request is malformed."""
    return Refused(f"the sandbox's proxy does not take this request: {why}", 400)


def read_first_line(head: bytes) -> Asked:
    """Read the first line of a request's head, and see that its lines are beyond doubt.

    Args:
        head: The head, up to and with the empty line.

    Returns:
        What is asked for.

    Raises:
        Refused: It is malformed, or names no host.
    """
    match = _LINE.fullmatch(head.partition(b"\r\n")[0])
    if match is None:
        raise misunderstood("its first line is not one of HTTP/1.1 or 1.0")
    asked = _tunnel(match[2]) if match[1] == b"CONNECT" else _plain(match[1], match[2])
    if _FOLDED.search(head) or _BARE_BREAK.search(head) or b"\0" in head:
        raise misunderstood("a line of its head is folded, or ends in half a line break, or holds a NUL")
    return asked


def check_headers(asked: Asked, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """See that the headers say the same as the first line, and leave no doubt about where the body ends.

    Args:
        asked: What the first line asks for.
        headers: Names in small letters, and values.

    Raises:
        Refused: They do not.
    """
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    lengths = found.get(b"content-length", []), found.get(b"transfer-encoding", [])
    if all(lengths) or any(len(values) > 1 for values in lengths):
        raise misunderstood("it gives the length of its body more than once")
    if asked.tunnel and any(lengths):
        raise misunderstood("CONNECT has no body")
    hosts = found.get(b"host", [])
    if len(hosts) > 1:
        raise misunderstood("it has several Host headers")
    if hosts and not _same_host(asked, hosts[0]):
        raise Refused(
            f"the Host header {shown(hosts[0].decode('latin-1'))} is not the host of the request, {asked.where}: it must be"
        )


def _same_host(asked: Asked, value: bytes) -> bool:
    # The port may be left out where the scheme has it; some clients leave it out of CONNECT, too.
    try:
        host, port = _host_and_port(value.decode("latin-1"), asked.port if asked.tunnel else 80)
    except Refused:
        return False
    return (host, port) == (asked.host, asked.port)


def _tunnel(target: bytes) -> Asked:
    host, port = _host_and_port(target.decode("latin-1"), None)
    return Asked(True, host, port)


def _plain(method: bytes, target: bytes) -> Asked:
    scheme, mark, rest = target.partition(b"://")
    if not mark:
        raise misunderstood("this is a proxy, so a request names its host: `GET http://host/path`")
    if scheme.lower() != b"http":
        raise misunderstood(
            f"{shown(scheme.decode('latin-1'))} does not go through a proxy like this; for https use CONNECT"
        )
    authority, path = re.fullmatch(rb"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    host, port = _host_and_port(authority.decode("latin-1"), 80)
    if b"#" in path or any(byte < 0x21 or byte == 0x7F for byte in path):
        raise misunderstood("its URL has a fragment or a control character")
    if not path and method == b"OPTIONS":
        path = b"*"
    return Asked(False, host, port, path if path[:1] in (b"/", b"*") else b"/" + path)


def _host_and_port(authority: str, default: int | None) -> tuple[str, int]:
    if len(authority) > _NAMES_LIMIT:
        raise misunderstood("the name of its host is too long")
    if "@" in authority:
        raise Refused(f"{shown(authority)} has a user in front of the host: leave that out, and put it into a header")
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    if not port and default is None:
        raise misunderstood(f"{shown(authority)} has no port")
    if port and not _PORT.fullmatch(port):
        raise misunderstood(f"{shown(authority)} has no port that is a number")
    try:
        name = normalise(host)
    except ValueError as error:
        raise Refused(f"{error}, so it is not in allow_domains") from None
    number = int(port) if port else default
    assert number is not None
    if not 0 < number < 65536:
        raise misunderstood(f"{shown(authority)} has no port from 1 to 65535")
    return name, number
