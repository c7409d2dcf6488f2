"""Plain HTTP: one request on each connection, taken apart and written anew, so that nothing can hide behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import h11

from autogen_codeact.sandbox.egress.asked import Asked, misunderstood
from autogen_codeact.sandbox.egress.channel import PIECE, Channel
from autogen_codeact.sandbox.egress.outside import Streams
from autogen_codeact.sandbox.egress.relay import relay_with

_HOP_BY_HOP = {
    b"connection", b"host", b"keep-alive",
    b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"upgrade",
}  # fmt: skip
Headers = list[tuple[bytes, bytes]]


async def exchange(
    channel: Channel, asked: Asked, streams: Streams, inside: h11.Connection, request: h11.Request
) -> None:
    """Pass on one request and its answer.

    Args:
        channel: The sandbox's side.
        asked: What the request asks for.
        streams: The host's side, connected.
        inside: Parses what comes from the sandbox; it has given the request.
        request: The request.
    """
    reader, writer = streams
    outside = h11.Connection(h11.CLIENT)
    host = asked.where.removesuffix(":80") if asked.port == 80 else asked.where
    headers = [(b"Host", host.encode()), *_to_pass_on(request), (b"Connection", b"close")]
    writer.write(outside.send(h11.Request(method=request.method, target=asked.path, headers=headers)) or b"")
    await writer.drain()
    body = _pass_body(channel, writer, inside, outside)
    await relay_with(channel, body, _pass_answer(channel, reader, inside, outside), until_down_ends=True)


def _to_pass_on(message: h11.Request | h11.Response) -> Headers:
    headers = message.headers
    named = {token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")}
    dropped = _HOP_BY_HOP | (named - {b"content-length", b"transfer-encoding"})
    return [(raw, value) for raw, value in headers.raw_items() if raw.lower() not in dropped]


async def _pass_body(
    channel: Channel, writer: asyncio.StreamWriter, inside: h11.Connection, outside: h11.Connection
) -> None:
    while True:
        try:
            event = inside.next_event()
        except h11.RemoteProtocolError as error:
            raise misunderstood(str(error)) from None
        if event is h11.NEED_DATA:
            inside.receive_data(await channel.read())
        elif isinstance(event, h11.Data):
            writer.write(outside.send(event) or b"")
            await writer.drain()
        else:
            # Whatever stands behind the body is another request, which this connection does not carry.
            writer.write(outside.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            return


async def _pass_answer(
    channel: Channel, reader: asyncio.StreamReader, inside: h11.Connection, outside: h11.Connection
) -> None:
    while True:
        event = outside.next_event()
        if event is h11.NEED_DATA:
            outside.receive_data(await reader.read(PIECE))
            continue
        for answer in _answers(event):
            await channel.write(inside.send(answer) or b"")
        if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            channel.end()
            return


def _answers(event: object) -> Iterable[h11.Event]:
    """What the sandbox is told."""
    if isinstance(event, h11.InformationalResponse):
        if event.status_code != 101:
            yield event
    elif isinstance(event, h11.Response):
        headers = [*_to_pass_on(event), (b"Connection", b"close")]
        yield h11.Response(status_code=event.status_code, reason=event.reason, headers=headers)
    elif isinstance(event, h11.Data):
        yield h11.Data(data=event.data)
    elif isinstance(event, h11.EndOfMessage):
        yield h11.EndOfMessage()
