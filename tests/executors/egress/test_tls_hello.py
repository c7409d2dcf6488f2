"""A client's hello, as OpenSSL makes it and as nobody should."""

import ssl
import struct

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from autogen_codeact.sandbox.egress.tls_hello import MOST_BYTES, NotTls, asks_again, read_hello


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


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["ok.example", None])
def test_a_real_hello_is_read(version: ssl.TLSVersion, name: str | None) -> None:
    data = hello(name, version=version)
    found = read_hello(data + b"what comes next")
    assert found is not None
    assert (found.server_name, found.size) == (name, len(data))


def test_capitals_and_a_dot_at_the_end_are_the_same_name() -> None:
    found = read_hello(made(names((0, b"OK.Example."))))
    assert found is not None
    assert found.server_name == "ok.example"


def test_every_piece_of_one_is_waited_for() -> None:
    data = hello()
    for size in range(len(data)):
        assert read_hello(data[:size]) is None, size


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_one_in_many_records_is_read(size: int) -> None:
    data = records(hello()[5:], size)
    found = read_hello(data)
    assert found is not None
    assert (found.server_name, found.size) == ("ok.example", len(data))
    assert read_hello(data[:-1]) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "is not TLS"),
        (b"G", "is not TLS"),
        (b"SSH-2.0-OpenSSH\r\n", "is not TLS"),
        (b"\x80\x2e\x01\x00\x02", "is not TLS"),
        (b"\x16\x02\x00\x00\x05hello", "is not TLS"),
        (b"\x16\x03\x01\x00\x00", "is not TLS"),
        (b"\x16\x03\x01\x40\x01", "is not TLS"),
        (b"\x14\x03\x03\x00\x01\x01", "is not TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "is not TLS"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "is not a client's hello"),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "is too long"),
        (b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01x", "is not TLS"),
        (records(hello()[5:] + hello()[5:], 16384), "is too long"),
        (made(b"", trailing=b"x"), "has something behind its extensions"),
        (made(b"\x00\x00\x00\xff"), "is cut off"),
        (made(names((0, b"ok.example")) + names((0, b"evil.example"))), "names its server twice"),
        (made(names((0, b"ok.example"), (0, b"evil.example"))), "not one server name but several"),
        (made(names((1, b"ok.example"))), "not one server name but several"),
        (made(names((0, b"evil\0.ok.example"))), "is not the name of a host"),
        (made(names((0, b""))), "is not the name of a host"),
        (made(names((0, "bücher.example".encode()))), "is not the name of a host"),
        (records(b"\x01\x00\x00\x03\x03\x03\x00", 16384), "is cut off"),
    ],
)
def test_what_is_none_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(NotTls, match=said):
        read_hello(data)


def test_one_without_extensions_names_nobody() -> None:
    body = b"\x03\x01" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    found = read_hello(records(b"\x01" + len(body).to_bytes(3) + body, 16384))
    assert found is not None
    assert found.server_name is None


def test_the_second_one_may_follow_a_change_of_cipher() -> None:
    data = b"\x14\x03\x03\x00\x01\x01" + hello("second.example")
    found = read_hello(data, again=True)
    assert found is not None
    assert (found.server_name, found.size) == ("second.example", len(data))
    for size in range(len(data)):
        assert read_hello(data[:size], again=True) is None, size


BEGINNING = hello()[:60]


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_no_surprise(data: bytes) -> None:
    for prefix in (b"", b"\x16\x03\x01\x01\x00", BEGINNING):
        try:
            found = read_hello(prefix + data)
        except NotTls:
            continue
        assert found is None or found.size <= len(prefix + data)


def test_waiting_for_one_ends() -> None:
    endless = records(b"\x01" + (MOST_BYTES - 4).to_bytes(3) + bytes(MOST_BYTES - 5), 1)
    with pytest.raises(NotTls, match="is too long"):
        read_hello(endless)


def test_a_server_that_wants_another_hello_is_told_from_one_that_does_not() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.set_ecdh_curve("secp521r1")  # which no client offers at first
    client = ssl.create_default_context()
    incoming, outgoing, wants = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(incoming, outgoing, server_hostname="ok.example")
    with pytest.raises(ssl.SSLWantReadError):
        asking.do_handshake()
    trustme.CA().issue_cert("ok.example").configure_cert(server)
    answering = server.wrap_bio(outgoing, wants, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        answering.do_handshake()
    said = wants.read()
    assert asks_again(said)
    assert not asks_again(said[:40])
    assert not asks_again(said.replace(said[11:43], bytes(32)))
