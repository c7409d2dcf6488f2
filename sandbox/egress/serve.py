"""One connection from the sandbox, from its request to its end."""

from __future__ import annotations

import asyncio
import contextlib

import h11

from autogen_codeact.sandbox.egress.asked import Asked, check_headers, misunderstood, read_first_line
from autogen_codeact.sandbox.egress.channel import HEAD_LIMIT, Channel, ChannelClosed
from autogen_codeact.sandbox.egress.ledger import Ledger, Record
from autogen_codeact.sandbox.egress.outside import Outside
from autogen_codeact.sandbox.egress.plain import exchange
from autogen_codeact.sandbox.egress.policy import Refused
from autogen_codeact.sandbox.egress.tls_tunnel import UNRECOGNIZED_NAME, TunnelRefused, tunnel

HEAD_TIMEOUT_S = 10.0


async def serve(channel: Channel, outside: Outside, ledger: Ledger) -> None:
    """Read what a connection asks for, and do or refuse it.

    Args:
        channel: The connection.
        outside: The hosts that may be reached.
        ledger: What has been asked for.
    """
    record = None
    try:
        head = await _read_head(channel)
        if not head:
            return
        record = ledger.open(channel)
        asked = read_first_line(head)
        record.asked = asked
        await _do(channel, outside, asked, head)
    except TunnelRefused as refusal:
        _note(record, refusal)
        await _say(channel, UNRECOGNIZED_NAME)
    except Refused as refusal:
        _note(record, refusal)
        await _say_no(channel, refusal)
    except ChannelClosed:
        pass
    except (OSError, h11.ProtocolError) as error:
        where = record.asked.where if record is not None and record.asked is not None else "its host"
        broken = Refused(f"the connection to {where} broke: {str(error) or type(error).__name__}", 502)
        _note(record, broken)
        await _say_no(channel, broken)


async def _read_head(channel: Channel) -> bytes:
    """The head of a request; empty where nothing was asked."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            return await channel.read_head()
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError:
        raise misunderstood(f"its head is longer than {HEAD_LIMIT} bytes") from None
    except TimeoutError:
        raise Refused(f"the request to the sandbox's proxy was not complete after {HEAD_TIMEOUT_S:g} s", 408) from None


async def _do(channel: Channel, outside: Outside, asked: Asked, head: bytes) -> None:
    inside = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
    inside.receive_data(head)
    try:
        request = inside.next_event()
    except h11.RemoteProtocolError as error:
        raise misunderstood(str(error)) from None
    assert isinstance(request, h11.Request)
    check_headers(asked, request.headers)
    reader, writer = await outside.connect(asked.host, asked.port)
    try:
        if asked.tunnel:
            await tunnel(channel, asked, (reader, writer))
        else:
            await exchange(channel, asked, (reader, writer), inside, request)
    finally:
        writer.transport.abort()


def _note(record: Record | None, refusal: Refused) -> None:
    if record is not None:
        record.reason = str(refusal)
        record.allowed = refusal.status not in (400, 403)


async def _say_no(channel: Channel, refusal: Refused) -> None:
    # Behind the beginning of an answer another one would be taken for a part of it.
    if not channel.received:
        await _say(channel, _answer(refusal))


async def _say(channel: Channel, data: bytes) -> None:
    with contextlib.suppress(ChannelClosed):
        await channel.write(data)


def _answer(refusal: Refused) -> bytes:
    # Python's clients show nothing of an answer to CONNECT but its first line.
    sentence = " ".join(str(refusal).encode("ascii", "replace").decode().split())
    body = f"{sentence}\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status} {sentence}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
