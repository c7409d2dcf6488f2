"""Feed the host's end of the protocol what no sandbox should send; anything but its own errors is raised."""

import asyncio
import contextlib
import json
import random
import socket
import struct
from typing import Any

from autogen_codeact.executors import ExecutionResult, SandboxError, SandboxProtocolError, ToolLimits
from autogen_codeact.executors.tools.host_tools import HostTools
from codeact_sandbox.egress.connector import Connector
from codeact_sandbox.egress.gateway import Gateway
from codeact_sandbox.egress.http_proxy import check_headers, parse_head, read_request
from codeact_sandbox.egress.tls_tunnel import NotTls, read_client_hello
from codeact_sandbox.host import protocol
from codeact_sandbox.host.blocks import to_result
from codeact_sandbox.host.connection import Connection, Reply
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.tools.broker import BlockCalls, ToolBroker
from codeact_sandbox.types.allowed_domains import Policy, Refused
from codeact_sandbox.types.observers import BlockId
from codeact_sandbox.types.run_context import NO_CONTEXT, Block

HANG_S = 10.0
RESULT = {
    "outcome": "ok", "exit_code": 0, "error": None, "value": None, "duration_s": 0.1, "dropped": [0], "tail": [0],
    "state": "kept", "notes": [], "files": [],
}  # fmt: skip
REPORT = {
    "exit_code": 0, "value": "1", "error": {"type": "E", "message": "m", "line": 1}, "late": "", "environment": {"A": "b"},
    "unset": ["B"], "cwd": "/", "too_large": False, "pid": 7, "skipped": None, "preload": {}, "fds": 1,
}  # fmt: skip
KEYS = sorted(
    {*RESULT, *REPORT, "name", "size", "mode", "inline", "op", "offset", "final", "timeout", "path", "command"}
)
ODD = (
    None, True, False, 0, -1, 2**31, 2**32, 2**63, -(2**70), 10**19, 1e308, -0.0, float("inf"), float("nan"), "", "\0", "\ud800",
    "x" * 5000, "../../etc/passwd", "\x1b[31m", [], {}, [[]], {"": ""}, [None], "ok", "kept",
)  # fmt: skip
CHANNEL = {"op": "data", "bytes": 0}
CALL = {"name": "echo", "arguments": {"thing": 1}}
HEAD = b"CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n\r\n"
HELLO = bytes.fromhex(
    "160301003a010000360303" + "00" * 32 + "00" + "00021301" + "0100" + "000b" + "0000000700050000026162"
)
HELLO_FRAME = struct.pack("!cII", b"H", 0, 6) + b"\0\0\0\2{}"
NOT_JSON = (
    b"", b"{", b'{"a":', b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"null", b"1" * 5000, b'{"a":' + b"9" * 4000 + b"}",
    b"NaN",    b'{"a":1e99999}', b'{"exit_code":1,"exit_code":[]}', b'{"\\ud800":"\\udfff"}', b'{"a":0.' + b"1" * 100_000 + b"}",
)  # fmt: skip


class Maker:
    """Makes frames, from nearly right to noise.

    Args:
        seed: Of its random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        """A value for JSON."""
        roll = self.random.random()
        if depth > 4 or roll < 0.6:
            return self.random.choice(ODD)
        if roll < 0.7:
            return self.random.randint(-(2 ** self.random.randint(1, 80)), 2 ** self.random.randint(1, 80))
        if roll < 0.8:
            return "".join(chr(self.random.randint(0, 0xFFFF)) for _ in range(self.random.randint(0, 30)))
        if roll < 0.9:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 5))]
        return {self.random.choice(KEYS): self.value(depth + 1) for _ in range(self.random.randint(0, 5))}

    def message(self, like: dict[str, Any]) -> dict[str, Any]:
        """A message like one that is right, with some of its values changed, dropped or added."""
        made = dict(like)
        for _ in range(self.random.randint(0, 4)):
            key = self.random.choice(KEYS)
            if self.random.random() < 0.2:
                made.pop(key, None)
            else:
                made[key] = self.value()
        return made

    def payload(self, like: dict[str, Any]) -> bytes:
        """The payload of a frame."""
        roll = self.random.random()
        if roll < 0.1:
            return self.random.randbytes(self.random.randint(0, 400))
        head = self.random.choice(NOT_JSON) if roll < 0.2 else json.dumps(self.message(like)).encode()
        data = self.random.randbytes(self.random.choice((0, 0, 3, 1000)))
        size = len(head) if self.random.random() < 0.9 else self.random.choice((0, 1, len(head) + 1, 2**31, 2**32 - 1))
        return struct.pack("!I", size) + head + data

    def frame(self, kinds: bytes, like: dict[str, Any]) -> bytes:
        """One frame."""
        payload = self.payload(like)
        kind = bytes([self.random.choice(kinds) if self.random.random() < 0.9 else self.random.randrange(256)])
        length = (
            len(payload) if self.random.random() < 0.95 else self.random.choice((0, 1, 2**23 + 1, 2**31, 2**32 - 1))
        )
        frame = struct.pack("!cII", kind, self.random.choice((0, 1, 1, 1, 2, 2**32 - 1)), length) + payload
        if self.random.random() < 0.1:
            frame = bytearray(frame)
            for _ in range(self.random.randint(1, 5)):
                frame[self.random.randrange(len(frame))] = self.random.randrange(256)
        return bytes(frame)

    def spoilt(self, data: bytes) -> bytes:
        """Bytes with some of them changed, dropped, or said twice."""
        made = bytearray(data)
        for _ in range(self.random.randint(0, 4)):
            at = self.random.randrange(len(made) or 1)
            piece = self.random.choice(
                (self.random.randbytes(1), b"\r", b"\n", b"\0", b" ", b":", b"@", b"\xff", b"1", b"")
            )
            made[at : at + self.random.randint(0, 2)] = piece * self.random.randint(1, 3)
        return bytes(made[: self.random.randint(0, len(made))] if self.random.random() < 0.1 else made)

    def stream(self, kinds: bytes, like: dict[str, Any]) -> list[bytes]:
        """Frames, cut anywhere."""
        data = b"".join(self.frame(kinds, like) for _ in range(self.random.randint(1, 6)))
        edges = sorted(self.random.randint(0, len(data)) for _ in range(self.random.randint(0, 6)))
        return [data[start:end] for start, end in zip([0, *edges], [*edges, len(data)], strict=True)]


class SocketStream:
    """A stream to a sandbox that is this program."""

    def __init__(self) -> None:
        self._ours, self.other = socket.socketpair()
        self._ours.setblocking(False)

    @property
    def read_fd(self) -> int:
        """The socket."""
        return self._ours.fileno()

    write_fd = read_fd

    def read(self, size: int, /) -> bytes | None:
        """Read what is there."""
        try:
            return self._ours.recv(size)
        except BlockingIOError:
            return None

    def write(self, data: memoryview, /) -> int | None:
        """Write what there is room for."""
        try:
            return self._ours.send(data)
        except BlockingIOError:
            return None

    def wait_exit(self, timeout_s: float) -> str:
        """Nothing is known."""
        return "its exit code is not known"

    @property
    def lease_s(self) -> None:
        """None."""

    def close(self) -> None:
        """Hang up."""
        self._ours.close()


def host_parser(maker: Maker) -> None:
    """`protocol.Parser` and `protocol.unpack`, then what is made of a block's reply."""
    parser = protocol.Parser()
    try:
        for piece in maker.stream(b"DAHOE!", RESULT):
            for _, _, payload in parser.feed(piece):
                message, data = protocol.unpack(payload)
                result(message, data)
    except SandboxProtocolError:
        pass


def host_reply(maker: Maker) -> None:
    """A reply that is well-formed JSON of any shape."""
    result(json.loads(json.dumps(maker.message(RESULT))), b"abc")


def result(message: dict[str, Any], data: bytes) -> None:
    """Make a result, or a protocol error; a result is text that can be sent on."""
    try:
        checked_entries(message.get("files", []))
        made = to_result(
            Reply(message, data, {b"O": bytearray(b"\xffabc")}),
            split_streams=False,
        )
    except SandboxProtocolError:
        return
    assert isinstance(made, ExecutionResult)
    texts = [
        made.output,
        made.value_repr or "",
        *made.notes,
        *((made.error.type, made.error.message) if made.error else ()),
    ]
    "".join(texts).encode()


def host_connection(maker: Maker) -> None:
    """A whole connection: whoever waits hears of an answer or of a `SandboxError`, and the thread ends."""
    stream = SocketStream()
    connection = Connection(stream, "fuzzed")
    waiting = [connection.request(b"X", ident, {}, output_room=1000) for ident in (1, 2)]
    connection.open()
    try:
        stream.other.sendall(HELLO_FRAME)
        for piece in maker.stream(b"DAHOE!", RESULT):
            stream.other.sendall(piece)
    except OSError:
        pass  # it has hung up, as it should
    stream.other.close()
    for future in waiting:
        with contextlib.suppress(SandboxError):
            assert isinstance(future.result(HANG_S), Reply)
    assert connection.close(HANG_S), "the thread of the connection hangs"


def host_channels(maker: Maker) -> None:
    """Connections out of the sandbox: whatever is said of them, there is an end, and no error but one of the protocol."""
    gateway = Gateway(Connector(Policy(["www.example.com"]), resolve=lambda _: []))
    stream = SocketStream()
    connection = Connection(stream, "fuzzed")
    gateway.attach(connection, "fuzzed")
    connection.open()
    opened = HELLO_FRAME + struct.pack("!cI", b"N", 1) + _sized(_message({"op": "open"}))
    request = struct.pack("!cI", b"N", 1) + _sized(_message({"op": "data"}) + maker.spoilt(HEAD))
    try:
        for piece in (opened, request, *maker.stream(b"NNNNNNDA", CHANNEL)):
            stream.other.sendall(piece)
    except OSError:
        pass  # it has hung up, as it should
    stream.other.close()
    error = connection.ended.result(HANG_S)
    assert isinstance(error, SandboxError), error
    assert "failed" not in str(error), error  # an error of our own
    gateway.close()
    assert connection.close(HANG_S), "the thread of the connection hangs"


def _message(message: dict[str, Any]) -> bytes:
    head = json.dumps(message).encode()
    return struct.pack("!I", len(head)) + head


def _sized(payload: bytes) -> bytes:
    return struct.pack("!I", len(payload)) + payload


def host_requests(maker: Maker) -> None:
    """What code asks its proxy for, and its TLS client's hello."""
    with contextlib.suppress(Refused):
        _, message = parse_head(maker.spoilt(HEAD))
        check_headers(read_request(message), message)
    with contextlib.suppress(NotTls, asyncio.IncompleteReadError):
        asyncio.run(_read_hello(maker.spoilt(HELLO)))


async def _read_hello(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    await read_client_hello(reader.readexactly)


async def echo(thing: object = None) -> object:
    """Give it back."""
    return thing


def host_calls(maker: Maker) -> None:
    """Calls to host tools: each that is taken is answered once, in JSON."""
    asyncio.run(_host_calls(maker))


async def _host_calls(maker: Maker) -> None:
    calls = BlockCalls(BROKER, Block("pass"), NO_CONTEXT, BlockId())
    answers: list[bytes] = []
    calls.send = answers.append
    taken = set()
    for number in range(8):
        head = (
            maker.random.choice(NOT_JSON) if maker.random.random() < 0.2 else json.dumps(maker.message(CALL)).encode()
        )
        with contextlib.suppress(SandboxProtocolError):
            calls.on_frame(b"T", struct.pack("!I", number) + head)
            taken.add(number)
            if maker.random.random() < 0.2:
                calls.on_frame(b"U", struct.pack("!I", number))
    for _ in range(1000):
        if len(answers) == len(taken):
            break
        await asyncio.sleep(0.001)
    assert sorted(struct.unpack("!I", answer[:4])[0] for answer in answers) == sorted(taken)
    assert all(isinstance(json.loads(answer[4:]), dict) for answer in answers)
    calls.end()
    await calls.close()


BROKER = ToolBroker(HostTools([echo]).known or (), ToolLimits(in_flight=8))
