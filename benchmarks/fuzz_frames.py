"""Feed both ends of the protocol what nobody should send, and say what raised anything but their own errors.

Usage: python benchmarks/fuzz_frames.py [--minutes 5] [--side host|sandbox|both] [--seed 0]
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import random
import selectors
import socket
import struct
import sys
import tempfile
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
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

RUNNER = Path(protocol.__file__).parents[1] / "runner"
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

    def lease_s(self, requested_s: float) -> None:
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


def load_runner() -> types.SimpleNamespace:
    """The runner's modules, as `BOOT` loads them."""
    for name in ("", ".shared", ".worker", ".zygote", ".supervisor"):
        package = types.ModuleType(f"codeact_runner{name}")
        package.__path__ = [str(RUNNER / name.strip("."))]
        sys.modules[package.__name__] = package
    names = (
        "shared.wire",
        "supervisor.event_loop",
        "supervisor.files",
        "supervisor.session_environment",
        "supervisor.checkpoints",
        "supervisor.worker_processes",
        "supervisor.tool_relay",
        "supervisor.block_report",
    )
    return types.SimpleNamespace(
        **{name.partition(".")[2]: importlib.import_module(f"codeact_runner.{name}") for name in names}
    )


class Supervisor:
    """What the supervisor does with the frames of a host and of a worker.

    Args:
        folder: Where its files are.
    """

    def __init__(self, folder: Path) -> None:
        self.runner = load_runner()
        self.store = self.runner.files.Files(str(folder))

    def parser(self, maker: Maker) -> None:
        """`wire.Parser` and `wire.unpack`."""
        wire = self.runner.wire
        made = wire.Parser(maker.random.choice((100, wire.MAX_REPORT)))
        with contextlib.suppress(wire.ProtocolError):
            for piece in maker.stream(b"DCGHXS", REPORT):
                for _, _, payload in made.feed(piece):
                    wire.unpack(payload)

    def worker(self, maker: Maker) -> None:
        """A worker's socket: what is reported, how far it is believed, what is kept of it for the next block."""
        ours, theirs = socket.socketpair()
        reports: list[dict[str, Any]] = []
        hung_up: list[bool] = []
        checkpoint = self.runner.checkpoints.Checkpoint(theirs)

        def hear(kind: bytes, _ident: int, message: dict[str, Any]) -> None:
            if kind == b"C":
                checkpoint.set_taken(message)
            else:
                reports.append(self.runner.block_report.check(message))

        with selectors.DefaultSelector() as selector:
            made = self.runner.worker_processes.ProcessConnection(selector, hear, lambda: hung_up.append(True))
            made.connect(ours, os.getpid())
            data = b"".join(maker.stream(b"DCG", REPORT))
            while data and not made.closed:
                cut = maker.random.randint(1, 32 * 1024)
                theirs.sendall(data[:cut])
                data = data[cut:]
                for key, events in selector.select(0):
                    key.data(events)
            made.read_rest()
        self.remember(reports)
        checkpoint.is_alive()
        theirs.close()
        assert made.closed
        assert len(hung_up) <= 1

    def remember(self, reports: list[dict[str, Any]]) -> None:
        """What is kept of reports has to fit into the host's frames and into the next request."""
        wire, shared = self.runner.wire, self.runner.session_environment.SessionEnvironment()
        for report in reports:
            shared.interpreter_ended(report)
            shared.shell_ended(json.dumps(report).encode())
            wire.pack(b"D", 1, report)
        wire.pack(
            b"X", 1, {**shared.for_shell("/workspace"), **shared.changes_for_interpreter()}, b"", wire.MAX_REQUEST
        )

    def calls(self, maker: Maker) -> None:
        """A block's socket for calls to host tools: what is passed on is bounded and well-formed, and answers find their way."""
        sent: list[tuple[bytes, bytes]] = []
        loop = self.runner.event_loop.EventLoop()
        with loop.selector as selector:
            supervisor = types.SimpleNamespace(
                config={"tools": {"in_flight": 4, "call_bytes": 1000}},
                loop=loop,
                paused_relays=set(),
                outbox=types.SimpleNamespace(size=0),
                send=lambda kind, _ident, _message, payload: sent.append((kind, payload)),
            )
            relay = self.runner.tool_relay.ToolRelay(supervisor, 1, types.SimpleNamespace(pid=os.getpid()))
            theirs = relay.block_end
            theirs.setblocking(False)
            with contextlib.suppress(OSError):
                for piece in maker.stream(b"TTTU", CALL):
                    theirs.send(piece)
                    for key, events in selector.select(0):
                        key.data(events)
                    for _, payload in sent[-2:]:
                        relay.answer(payload)
            relay.close()
            theirs.close()
            assert not selector.get_map()
        assert all(kind in (b"T", b"U") and 4 <= len(payload) <= 1004 for kind, payload in sent)

    def files(self, maker: Maker) -> None:
        """Requests about files, of any shape."""
        request = maker.message({"op": maker.random.choice(("read", "write", "list", "x")), "name": "f", "final": True})
        if isinstance(request.get("name"), str):
            # In its own folder: this program is not a sandbox.
            request["name"] = os.path.basename(request["name"])[:50] or "f"
        answer, data = self.store.handle(maker.random.randint(1, 90), json.loads(json.dumps(request)), b"data")
        self.runner.wire.pack(b"A", 1, answer, data)


def fuzz(cases: list[Callable[[Maker], None]], seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Run cases in turn.

    Args:
        cases: What is run.
        seconds: How long.
        seed: Of the first; each execution has its own, which is told with a crash.

    Returns:
        Executions by case, and a description of each crash.
    """
    done: Counter[str] = Counter()
    crashes: dict[str, str] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for case in cases:
            seed += 1
            began = time.monotonic()
            try:
                case(Maker(seed))
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                where = traceback.extract_tb(error.__traceback__)[-1]
                crashes.setdefault(
                    f"{case.__name__} {type(error).__name__} {where.name}", f"seed {seed}:\n{traceback.format_exc()}"
                )
            if time.monotonic() - began > HANG_S:
                crashes.setdefault(f"{case.__name__} slow", f"seed {seed}: {time.monotonic() - began:.1f} s")
            done[case.__name__] += 1
    return done, [f"{name}, {text}" for name, text in crashes.items()]


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=5, help="for each side")
    options.add_argument("--side", choices=["host", "sandbox", "both"], default="both")
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for side in ("host", "sandbox") if chosen.side == "both" else (chosen.side,):
            if side == "host":
                cases = [host_parser, host_reply, host_connection, host_channels, host_requests, host_calls]
            else:
                supervisor = Supervisor(Path(folder))
                cases = [supervisor.parser, supervisor.worker, supervisor.calls, supervisor.files]
            done, crashes = fuzz(cases, chosen.minutes * 60, chosen.seed)
            print(f"{side}: {sum(done.values()):,} executions {dict(done)}, {len(crashes)} kinds of crash", flush=True)
            print(*crashes, sep="\n", flush=True)
            found += len(crashes)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
