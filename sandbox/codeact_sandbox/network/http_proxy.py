"""The HTTP proxy for code in a sandbox: reads the request of each connection strictly, and serves or refuses it.

What this proxy reads and what a server reads must be the same. So anything ambiguous is refused, and a plain HTTP request is
not passed on as it came but rewritten, one for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

from codeact_sandbox.network.channels import HEAD_LIMIT, PIECE, Channel, ChannelClosed, relay
from codeact_sandbox.network.connection_log import ConnectionLog, LogEntry
from codeact_sandbox.network.connector import CONNECT_TIMEOUT_S, Connector, Streams
from codeact_sandbox.network.secrets import Headers, MaskedAnswer, MaskedStream, Secrets
from codeact_sandbox.network.tls_channel import TlsChannel
from codeact_sandbox.network.tls_tunnel import (
    ESTABLISHED,
    HELLO_TIMEOUT_S,
    UNRECOGNIZED_NAME,
    TunnelRefused,
    read_hello,
    tunnel,
)
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.host_names import normalise, quoted, with_port

if TYPE_CHECKING:
    from codeact_sandbox.network.package_index import PackageIndex

HEAD_TIMEOUT_S = 10.0
# h11 reads folded lines and bare line breaks, which other programs read otherwise.
_AMBIGUOUS = re.compile(rb"\n[ \t]|\r(?!\n)|(?<!\r)\n|\0")
_PORT = re.compile(r"[0-9]{1,5}")
_HOP_BY_HOP = {
    b"connection", b"host", b"keep-alive",
    b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"upgrade",
}  # fmt: skip


@dataclass(frozen=True)
class ProxyRequest:
    tunnel: bool  # whether it is CONNECT, for TLS; else it is plain HTTP
    host: str  # the host, normalised
    port: int
    target: bytes = b""  # path and query for the host; empty for a tunnel
    default_port: int = 80  # which its Host header may leave out

    @property
    def authority(self) -> str:
        return with_port(self.host, self.port)


async def serve(
    channel: Channel,
    connector: Connector | None,
    log: ConnectionLog,
    local: PackageIndex | None = None,
    secrets: Secrets | None = None,
) -> None:
    entry = None
    try:
        head = await _read_head(channel)
        if not head:
            return
        if local is not None and head.split(b" ", 2)[1:2] and head.split(b" ", 2)[1].startswith(b"/"):
            if connector is None:
                raise _rebuilding("the package index")
            parser, message = parse_head(head)
            await local.serve(channel, message, parser, log)
            return
        entry = log.add(channel)
        parser, message = parse_head(head)
        request = read_request(message)
        entry.host, entry.port = request.host, request.port
        check_headers(request, message)
        if connector is None:
            raise _rebuilding(request.authority)
        streams = await connector.connect(request.host, request.port)
        try:
            if request.tunnel and secrets is not None and secrets.covers(request.host, request.port):
                await _serve_with_secrets(channel, request, streams, secrets, entry)
            elif request.tunnel:
                await tunnel(channel, request.host, request.port, streams)
            else:
                await _forward(channel, request, streams, parser, message)
        finally:
            streams[1].transport.abort()
    except ChannelClosed:
        pass
    except Refused as refusal:
        await _refuse(channel, entry, refusal)
    except (OSError, h11.ProtocolError) as error:
        where = with_port(entry.host, entry.port) if entry and entry.host and entry.port else "its host"
        await _refuse(channel, entry, Refused(f"the connection to {where} broke: {_reason(error)}", 502))


async def _serve_with_secrets(
    channel: Channel, tunnel: ProxyRequest, streams: Streams, secrets: Secrets, entry: LogEntry
) -> None:
    """Serve one request in a tunnel, whose TLS ends here; the real server is verified first."""
    writer = streams[1]
    await writer.start_tls(secrets.trust, server_hostname=tunnel.host, ssl_handshake_timeout=CONNECT_TIMEOUT_S)
    writer.transport.set_write_buffer_limits(1)  # with 0 asyncio's TLS would wait for ever
    await channel.write(ESTABLISHED)
    hello = await read_hello(channel, tunnel.host, tunnel.port)
    inside = TlsChannel(channel, secrets.authority.context(tunnel.host), hello)
    async with asyncio.timeout(HELLO_TIMEOUT_S):
        await inside.handshake()
    try:
        if head := await _read_head(inside):
            secrets.check(guessed=secrets.mask.apply(head) != head)
            parser, message = parse_head(head)
            request = read_request_in(tunnel, message)
            check_headers(request, message)
            await _forward(inside, request, streams, parser, message, secrets=secrets)
    except Refused as refusal:
        await _refuse(inside, entry, Refused(secrets.mask.text(str(refusal)), refusal.status))
    except (OSError, h11.ProtocolError) as error:
        reason = f"the connection to {tunnel.authority} broke: {secrets.mask.text(_reason(error))}"
        await _refuse(inside, entry, Refused(reason, 502))
    else:
        await inside.close()


async def _read_head(channel: Channel | TlsChannel) -> bytes:
    """Read the head of a request; empty if the client sent none."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            return await channel.read_head()
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError:
        raise _malformed(f"its head is longer than {HEAD_LIMIT} bytes") from None
    except TimeoutError:
        raise Refused(f"the request to the sandbox's proxy was not complete after {HEAD_TIMEOUT_S:g} s", 408) from None


def _rebuilding(what: str) -> Refused:
    return Refused(f"{what} can't be reached while the session is rebuilt, nor in a branch")


async def _refuse(channel: Channel | TlsChannel, entry: LogEntry | None, refusal: Refused) -> None:
    if entry is not None:
        entry.reason = str(refusal)
        entry.allowed = refusal.status not in (400, 403)
    if isinstance(refusal, TunnelRefused):
        answer = UNRECOGNIZED_NAME
    elif channel.received:
        return  # behind the beginning of a response it would be read as a part of it
    else:
        # Python's clients show nothing of a response to CONNECT but its first line.
        sentence = " ".join(str(refusal).encode("ascii", "replace").decode().split())
        answer = (
            f"HTTP/1.1 {refusal.status} {sentence}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(sentence) + 1}\r\nConnection: close\r\n\r\n{sentence}\n"
        ).encode()
    with contextlib.suppress(ChannelClosed):
        await channel.write(answer)


def _malformed(why: str) -> Refused:
    return Refused(f"the sandbox's proxy does not take this request: {why}", 400)


def _reason(error: Exception) -> str:
    # h11 quotes the line that it can't parse, however long it is.
    return str(error).partition(": bytearray(")[0] or type(error).__name__


def parse_head(head: bytes) -> tuple[h11.Connection, h11.Request]:
    if _AMBIGUOUS.search(head):
        raise _malformed("a line of its head is folded, or ends in half a line break, or holds a NUL")
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
    parser.receive_data(head)
    try:
        message = parser.next_event()
    except h11.RemoteProtocolError as error:
        raise _malformed(_reason(error)) from None
    if not isinstance(message, h11.Request) or message.http_version not in (b"1.0", b"1.1"):
        raise _malformed("it is not one of HTTP/1.1 or 1.0")
    return parser, message


def read_request(message: h11.Request) -> ProxyRequest:
    if message.method == b"CONNECT":
        return ProxyRequest(True, *_host_and_port(message.target.decode("latin-1"), None))
    scheme, separator, rest = message.target.partition(b"://")
    if not separator:
        raise _malformed("this is a proxy, so a request names its host: `GET http://host/path`")
    if scheme.lower() != b"http":
        found = quoted(scheme.decode("latin-1"))
        raise _malformed(f"{found} does not go through a proxy like this; for https use CONNECT")
    authority = re.split(rb"[/?#]", rest, maxsplit=1)[0]
    host, port = _host_and_port(authority.decode("latin-1"), 80)
    target = rest[len(authority) :]
    if b"#" in target:
        raise _malformed("its URL has a fragment")
    if not target and message.method == b"OPTIONS":
        target = b"*"
    return ProxyRequest(False, host, port, target if target[:1] in (b"/", b"*") else b"/" + target)


def read_request_in(tunnel: ProxyRequest, message: h11.Request) -> ProxyRequest:
    if any(name == b"upgrade" for name, _ in message.headers):
        raise Refused(f"{tunnel.authority} gets a secret, so upgrades such as websockets are refused")
    if message.method == b"CONNECT" or not (message.target.startswith(b"/") or message.target == b"*"):
        raise _malformed("its target is not a path")
    if b"#" in message.target:
        raise _malformed("its URL has a fragment")
    return ProxyRequest(False, tunnel.host, tunnel.port, message.target, default_port=443)


def _host_and_port(authority: str, default_port: int | None) -> tuple[str, int]:
    if "@" in authority:
        raise Refused(f"{quoted(authority)} has a user in front of the host: leave that out, and put it into a header")
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    if not port and default_port is None:
        raise _malformed(f"{quoted(authority)} has no port")
    if port and not _PORT.fullmatch(port):
        raise _malformed(f"{quoted(authority)} has no port that is a number")
    try:
        name = normalise(host)
    except ValueError as error:
        raise Refused(f"{error}, so it is not in allow_domains") from None
    number = int(port or default_port or 0)
    if not 0 < number < 65536:
        raise _malformed(f"{quoted(authority)} has no port from 1 to 65535")
    return name, number


def check_headers(request: ProxyRequest, message: h11.Request) -> None:
    """Check that the headers name the same host as the first line, and that the end of the body is unambiguous."""
    headers = dict(message.headers)
    lengths = {b"content-length", b"transfer-encoding"} & headers.keys()
    if len(lengths) > 1:
        raise _malformed("it gives the length of its body more than once")
    if request.tunnel and lengths:
        raise _malformed("CONNECT has no body")
    host = headers.get(b"host", request.authority.encode()).decode("latin-1")
    # The port may be left out where the scheme has it; some clients leave it out of CONNECT, too.
    with contextlib.suppress(Refused):
        if _host_and_port(host, request.port if request.tunnel else request.default_port) == (
            request.host,
            request.port,
        ):
            return
    raise Refused(f"the Host header {quoted(host)} is not the host of the request, {request.authority}: it must be")


async def _forward(
    channel: Channel | TlsChannel,
    request: ProxyRequest,
    streams: Streams,
    inside: h11.Connection,
    message: h11.Request,
    *,
    secrets: Secrets | None = None,
) -> None:
    reader, writer = streams
    outside = h11.Connection(h11.CLIENT)
    host = request.authority.removesuffix(f":{request.default_port}")
    headers = [(b"Host", host.encode()), *_end_to_end(message), (b"Connection", b"close")]
    if secrets is not None:
        headers = secrets.put_in(headers, request.host, request.port)
    writer.write(outside.send(h11.Request(method=message.method, target=request.target, headers=headers)) or b"")
    await writer.drain()
    answer = MaskedAnswer(secrets.mask) if secrets is not None else None
    up = _forward_body(channel, writer, inside, outside, secrets)
    moved = channel.channel if isinstance(channel, TlsChannel) else channel
    await relay(moved, up, _forward_response(channel, reader, inside, outside, answer), until_down_ends=True)


def _end_to_end(message: h11.Request | h11.Response) -> Headers:
    """Return the headers that are not for this connection alone."""
    headers = message.headers
    named = {token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")}
    dropped = _HOP_BY_HOP | (named - {b"content-length", b"transfer-encoding"})
    return [(raw, value) for raw, value in headers.raw_items() if raw.lower() not in dropped]


async def _forward_body(
    channel: Channel | TlsChannel,
    writer: asyncio.StreamWriter,
    inside: h11.Connection,
    outside: h11.Connection,
    secrets: Secrets | None,
) -> None:
    searched = MaskedStream(secrets.mask) if secrets is not None else None
    while True:
        try:
            event = inside.next_event()
        except h11.RemoteProtocolError as error:
            raise _malformed(_reason(error)) from None
        if event is h11.NEED_DATA:
            inside.receive_data(await channel.read())
            continue
        if secrets is not None and searched is not None and isinstance(event, h11.Data):
            searched.feed(bytes(event.data))
            secrets.check(guessed=searched.found)
        writer.write(outside.send(event if isinstance(event, h11.Data) else h11.EndOfMessage()) or b"")
        await writer.drain()
        if not isinstance(event, h11.Data):
            return  # whatever follows the body is another request, which this connection does not carry


async def _forward_response(
    channel: Channel | TlsChannel,
    reader: asyncio.StreamReader,
    inside: h11.Connection,
    outside: h11.Connection,
    answer: MaskedAnswer | None,
) -> None:
    while True:
        event = outside.next_event()
        if event is h11.NEED_DATA:
            outside.receive_data(await reader.read(PIECE))
            continue
        for response in _to_forward(event, answer):
            await channel.write(inside.send(response) or b"")
        if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            channel.end()
            return


def _to_forward(event: object, answer: MaskedAnswer | None) -> Iterable[h11.Event]:
    """Return what the sandbox receives for an event of the response."""
    if isinstance(event, h11.InformationalResponse):
        if event.status_code != 101:
            headers = answer.head(event.headers.raw_items()) if answer is not None else event.headers
            yield h11.InformationalResponse(status_code=event.status_code, headers=headers)
    elif isinstance(event, h11.Response):
        headers, reason = _end_to_end(event), bytes(event.reason)
        if answer is not None:
            headers, reason = answer.head(headers), answer.mask.apply(reason)
        headers = [*headers, (b"Connection", b"close")]
        yield h11.Response(status_code=event.status_code, reason=reason, headers=headers)
    elif isinstance(event, h11.Data):
        yield h11.Data(data=event.data if answer is None else answer.body.feed(bytes(event.data)))
    elif isinstance(event, h11.EndOfMessage):
        if answer is not None:
            yield h11.Data(data=answer.body.feed(b"", last=True))
        yield h11.EndOfMessage()
