"""Requests to the proxy, and TLS client hellos: unambiguous, or refused."""

import asyncio
import ssl
import struct
from typing import Any, NamedTuple

import pytest

from codeact_sandbox.network.http_proxy import ProxyRequest, check_headers, parse_head, read_request
from codeact_sandbox.network.tls_tunnel import HELLO_LIMIT, NotTls, read_client_hello
from codeact_sandbox.types.allowed_domains import Refused
from tests.cases import case


class Hello(NamedTuple):
    """What was read."""

    server_name: str | None
    size: int


def read_hello(data: bytes, *, second: bool = False) -> Hello | None:
    """Read a hello from what a client has sent so far; None if more has to come first."""

    async def read() -> Hello:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        records, name = await read_client_hello(reader.readexactly, second=second)
        assert data.startswith(records)
        return Hello(name, len(records))

    try:
        return asyncio.run(read())
    except asyncio.IncompleteReadError:
        return None


def hello(name: str | None = "ok.example", *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What a real client says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def records(message: bytes, size: int) -> bytes:
    """A handshake message in records of that size."""
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece for piece in pieces)


def made(extensions: bytes, *, trailing: bytes = b"") -> bytes:
    """A hello by hand."""
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + len(extensions).to_bytes(2) + extensions
    return records(b"\x01" + len(body + trailing).to_bytes(3) + body + trailing, 16384)


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack("!HH", kind, len(content)) + content


def names(*entries: tuple[int, bytes]) -> bytes:
    listed = b"".join(struct.pack("!BH", kind, len(name)) + name for kind, name in entries)
    return extension(0, len(listed).to_bytes(2) + listed)


def test_the_server_name_and_size_of_a_real_hello_are_read() -> None:
    for name in ["ok.example", None]:
        for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
            with case(name, version):
                data = hello(name, version=version)
                found = read_hello(data + b"what comes next")
                assert (found.server_name, found.size) == (name, len(data))


def test_an_incomplete_hello_is_read_on() -> None:
    data = hello()
    for size in range(len(data)):
        assert read_hello(data[:size]) is None, size


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_hello_in_many_records_is_read(size: Any) -> None:
    data = records(hello()[5:], size)
    found = read_hello(data)
    assert (found.server_name, found.size) == ("ok.example", len(data))
    assert read_hello(data[:-1]) is None


MALFORMED = "the client's hello is malformed"
BAD_NAME = "the server name in the client's hello is not the name of a host"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\n", "what came through the tunnel is not TLS"),
        (b"SSH-2.0-OpenSSH\r\n", "what came through the tunnel is not TLS"),
        (b"\x80\x2e\x01\x00\x02", "what came through the tunnel is not TLS"),
        (b"\x16\x02\x00\x00\x05hello", "what came through the tunnel is not TLS"),
        (b"\x14\x03\x03\x00\x01\x01", "what came through the tunnel is not TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "what came through the tunnel is not TLS"),
        (b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01x", "what came through the tunnel is not TLS"),
        (b"\x16\x03\x01\x48\x01\x01\x00\x47\xfd" + bytes(0x47FD), MALFORMED),
        (b"\x16\x03\x01\xff\xff\x01\x00\xff\xfb" + bytes(65531), "the client's hello is too long"),
        (b"\x16\x03\x01\x00\x00" * 20_000, "the client's hello is too long"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", MALFORMED),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "the client's hello is too long"),
        (records(hello()[5:] + hello()[5:], 16384), "the client's hello is followed by other data"),
        (made(b"", trailing=b"x"), MALFORMED),
        (made(b"\x00\x00\x00\xff"), MALFORMED),
        (made(names((0, b"ok.example")) + names((0, b"evil.example"))), MALFORMED),
        (made(names((0, b"ok.example"), (0, b"evil.example"))), MALFORMED),
        (made(names((1, b"ok.example"))), MALFORMED),
        (made(names((0, b"evil\0.ok.example"))), MALFORMED),
        (made(names((0, b""))), BAD_NAME),
        (made(names((0, b"ok example"))), BAD_NAME),
        (made(names((0, "bücher.example".encode()))), BAD_NAME),
        (records(made(names((0, b"\xff")))[5:], 3), BAD_NAME),
        (records(b"\x01\x00\x00\x03\x03\x03\x00", 16384), MALFORMED),
    ],
)
def test_a_malformed_hello_is_refused(data: Any, message: Any) -> None:
    with pytest.raises(NotTls) as caught:
        read_hello(data)
    assert str(caught.value).startswith(message)


def test_a_hello_without_extensions_has_no_server_name() -> None:
    body = b"\x03\x01" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    found = read_hello(records(b"\x01" + len(body).to_bytes(3) + body, 16384))
    assert found.server_name is None


def test_a_second_hello_may_follow_a_change_of_cipher() -> None:
    data = b"\x14\x03\x03\x00\x01\x01" + hello("second.example")
    found = read_hello(data, second=True)
    assert (found.server_name, found.size) == ("second.example", len(data))
    for size in range(len(data)):
        assert read_hello(data[:size], second=True) is None, size


def test_an_endless_hello_is_refused() -> None:
    endless = records(b"\x01" + (HELLO_LIMIT - 4).to_bytes(3) + bytes(HELLO_LIMIT - 5), 1)
    with pytest.raises(NotTls, match="is too long"):
        read_hello(endless)


def read(head: bytes) -> ProxyRequest:
    """Read a head as the proxy does, or raise."""
    _, message = parse_head(head)
    request = read_request(message)
    check_headers(request, message)
    return request


@pytest.mark.parametrize(
    ("head", "request_"),
    [
        (b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\n\r\n", ProxyRequest(True, "ok.example", 443)),
        (b"CONNECT ok.example:443 HTTP/1.0\r\n\r\n", ProxyRequest(True, "ok.example", 443)),
        (b"CONNECT OK.example.:8443 HTTP/1.1\r\nHost: ok.Example\r\n\r\n", ProxyRequest(True, "ok.example", 8443)),
        (b"CONNECT [2001:DB8::1]:443 HTTP/1.0\r\n\r\n", ProxyRequest(True, "2001:db8::1", 443)),
        (b"GET http://ok.example HTTP/1.1\r\nHost: ok.example\r\n\r\n", ProxyRequest(False, "ok.example", 80, b"/")),
        (
            b"GET HTTP://ok.example/a?b=http://c/ HTTP/1.0\r\n\r\n",
            ProxyRequest(False, "ok.example", 80, b"/a?b=http://c/"),
        ),
        (
            b"GET http://ok.example?b HTTP/1.1\r\nHost: OK.example:80\r\n\r\n",
            ProxyRequest(False, "ok.example", 80, b"/?b"),
        ),
        (
            b"PUT http://ok.example:81/ HTTP/1.1\r\nHost: ok.example:81\r\n\r\n",
            ProxyRequest(False, "ok.example", 81, b"/"),
        ),
        (
            b"OPTIONS http://ok.example HTTP/1.1\r\nHost: ok.example\r\n\r\n",
            ProxyRequest(False, "ok.example", 80, b"*"),
        ),
        (b"GET http://[2001:db8::1]:81/ HTTP/1.0\r\n\r\n", ProxyRequest(False, "2001:db8::1", 81, b"/")),
    ],
)
def test_a_request_is_read(head: Any, request_: Any) -> None:
    assert read(head) == request_


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"CONNECT evil\0.ok.example:443 HTTP/1.1", "holds a NUL"),
        (b"CONNECT ok.example:443\0 HTTP/1.1", "holds a NUL"),
        (b"CONNECT evil.example%00.ok.example:443 HTTP/1.1", "is not the name of a host"),
        (b"CONNECT ok.example HTTP/1.1", "'ok.example' has no port"),
        (b"CONNECT ok.example: HTTP/1.1", "'ok.example:' has no port"),
        (b"CONNECT ok.example:0 HTTP/1.1", "has no port from 1 to 65535"),
        (b"CONNECT ok.example:65536 HTTP/1.1", "has no port from 1 to 65535"),
        (b"CONNECT ok.example:+443 HTTP/1.1", "has no port that is a number"),
        (b"CONNECT ok.example:443:80 HTTP/1.1", "'ok.example:443' is not the name of a host"),
        (b"CONNECT ok.example:\xb2 HTTP/1.1", "illegal request line"),
        (b"CONNECT ok.example@evil.example:443 HTTP/1.1", "has a user in front of the host"),
        (b"CONNECT https://ok.example:443 HTTP/1.1", "'https://ok.example' is not the name of a host"),
        (b"CONNECT 2130706433:80 HTTP/1.1", "'2130706433' is not an IPv4 address in its usual form"),
        (b"CONNECT 0177.0.0.1:80 HTTP/1.1", "is not an IPv4 address in its usual form"),
        (b"CONNECT 0x7f.0.0.1:80 HTTP/1.1", "is not an IPv4 address in its usual form"),
        (b"CONNECT [::1%25lo]:80 HTTP/1.1", "has a zone"),
        (b"CONNECT " + b"a." * 200 + b"example:80 HTTP/1.1", "is not the name of a host"),
        (b"connect ok.example:443 HTTP/1.1", "this is a proxy"),
        (b"GET / HTTP/1.1", "this is a proxy, so a request names its host"),
        (b"GET ok.example/ HTTP/1.1", "this is a proxy"),
        (b"GET https://ok.example/ HTTP/1.1", "'https' does not go through a proxy like this; for https use CONNECT"),
        (b"GET file:///etc/passwd HTTP/1.1", "'file' does not go through a proxy"),
        (b"GET http:/// HTTP/1.1", "is not the name of a host"),
        (b"GET http://ok.example\\@evil.example/ HTTP/1.1", "has a user in front of the host"),
        (b"GET http://ok.example:80@evil.example/ HTTP/1.1", "has a user in front of the host"),
        (b"GET http://evil.example\\.ok.example/ HTTP/1.1", "is not the name of a host"),
        (b"GET http://ok.example/#a HTTP/1.1", "has a fragment"),
        (b"GET http://ok.example/\x01 HTTP/1.1", "illegal request line"),
        (b"GET http://ok.example/ HTTP/2.0", "is not one of HTTP/1.1 or 1.0"),
        (b"GET http://ok.example/ x HTTP/1.1", "illegal request line"),
        (b"GET  http://ok.example/ HTTP/1.1", "illegal request line"),
        (b"PRI * HTTP/2.0", "is not one of HTTP/1.1 or 1.0"),
    ],
)
def test_an_ambiguous_first_line_is_refused(line: Any, message: Any) -> None:
    with pytest.raises(Refused) as caught:
        read(line + b"\r\nHost: ok.example\r\n\r\n")
    assert message in str(caught.value)


PLAIN = b"POST http://ok.example/ HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (PLAIN + b"Host: evil.example\r\n\r\n", "'evil.example' is not the host of the request, ok.example:80"),
        (PLAIN + b"Host: ok.example:8080\r\n\r\n", "'ok.example:8080' is not the host of the request"),
        (PLAIN + b"Host: ok.example, evil.example\r\n\r\n", "is not the host of the request"),
        (PLAIN + b"Host:\r\n\r\n", "'' is not the host of the request"),
        (PLAIN + b"Host: ok.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "more than once"),
        (PLAIN + b"Host: ok.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", None),
        (PLAIN + b"Host: ok.example\r\nTransfer-Encoding: xchunked\r\n\r\n", None),
        (PLAIN + b"Host: ok.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", None),
        (PLAIN + b"Host: ok.example\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", None),
        (PLAIN + b"Host: ok.example\r\nContent-Length: +3\r\n\r\n", None),
        (PLAIN + b"Host: ok.example\r\nHost: evil.example\r\n\r\n", None),
        (PLAIN + b"\r\n", None),
        (PLAIN + b"Host : ok.example\r\n\r\n", None),
        (PLAIN + b"Host: ok.example\r\nA: b\r\n c\r\n\r\n", "folded"),
        (PLAIN + b"Host: ok.example\r\nA: b\nHost: evil.example\r\n\r\n", "half a line break"),
        (PLAIN + b"Host: ok.example\r\nA: b\rHost: evil.example\r\n\r\n", "half a line break"),
        (PLAIN + b"Host: ok.example\r\nA: \0\r\n\r\n", "holds a NUL"),
        (
            b"CONNECT ok.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
            "is not the host of the request, ok.example:443",
        ),
        (
            b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\nContent-Length: 3\r\n\r\n",
            "CONNECT has no body",
        ),
    ],
)
def test_ambiguous_headers_are_refused(head: Any, message: Any) -> None:
    with pytest.raises(Refused) as caught:
        read(head)
    if message is None:
        assert caught.value.status == 400
    else:
        assert message in str(caught.value)
