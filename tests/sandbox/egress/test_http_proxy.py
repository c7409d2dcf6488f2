"""Requests to the proxy: unambiguous, or refused."""

import pytest

from codeact_sandbox.egress.http_proxy import ProxyRequest, check_headers, parse_head, read_request
from codeact_sandbox.types.allowed_domains import Refused
from tests.cases import case


def read(head: bytes) -> ProxyRequest:
    """Read a head as the proxy does, or raise."""
    _, message = parse_head(head)
    request = read_request(message)
    check_headers(request, message)
    return request


def test_a_request_is_read() -> None:
    cases = [
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
    ]
    for head, request_ in cases:
        with case(head):
            assert read(head) == request_


def test_an_ambiguous_first_line_is_refused() -> None:
    cases = [
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
    ]
    for line, message in cases:
        with case(line):
            with pytest.raises(Refused) as caught:
                read(line + b"\r\nHost: ok.example\r\n\r\n")
            assert message in str(caught.value)


PLAIN = b"POST http://ok.example/ HTTP/1.1\r\n"


def test_ambiguous_headers_are_refused() -> None:
    cases = [
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
        (b"CONNECT ok.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "is not the host of the request, ok.example:443"),
        (b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\nContent-Length: 3\r\n\r\n", "CONNECT has no body"),
    ]  # fmt: skip
    for head, message in cases:
        with case(head):
            with pytest.raises(Refused) as caught:
                read(head)
            if message is None:
                assert caught.value.status == 400
            else:
                assert message in str(caught.value)


def test_a_long_line_is_not_quoted_in_full() -> None:
    with pytest.raises(Refused) as caught:
        read(b"\x01" * 60_000 + b"\r\n\r\n")
    assert str(caught.value) == "the sandbox's proxy does not take this request: illegal request line"
