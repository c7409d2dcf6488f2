"""Frames from whoever: cut anywhere, too large, garbage, malformed. Never a hang, a wrong error, or memory without end."""

import asyncio
import contextlib
import gc
import itertools
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_codeact.executors import SandboxError, SandboxProtocolError, SandboxStartError
from codeact_sandbox.host import protocol
from codeact_sandbox.host.blocks import to_result
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import Reply
from codeact_sandbox.host.protocol import RunnerSettings
from codeact_sandbox.runner.shared import wire
from tests.texts import ANY

FRAMES = st.tuples(st.binary(min_size=1, max_size=1), st.integers(0, 2**32 - 1), st.binary(max_size=300))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(ANY, max_size=20) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(ANY, max_size=5), inner, max_size=4),
    max_leaves=10,
)


def raw(kind: bytes, ident: int, payload: bytes) -> bytes:
    return struct.pack("!cII", kind, ident, len(payload)) + payload


def message(value: Any, data: bytes = b"") -> bytes:
    head = json.dumps(value).encode()
    return struct.pack("!I", len(head)) + head + data


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    yield from (data[start:end] for start, end in itertools.pairwise(edges))


class TestParsers:
    @given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 10**6), max_size=10))
    def test_parser_finds_the_same_frames_wherever_the_stream_is_cut(self, frames, cuts):
        data, parser = b"".join(raw(*frame) for frame in frames), wire.Parser()
        assert [frame for piece in pieces(data, cuts) for frame in parser.feed(piece)] == frames

    def test_parser_returns_the_frames_before_an_error(self) -> None:
        parser = wire.Parser()
        bad = struct.pack("!cII", b"D", 1, 2**32 - 1)
        assert parser.feed(raw(b"D", 1, b"x") + bad) == [(b"D", 1, b"x")]
        with pytest.raises(wire.ProtocolError):
            parser.feed(raw(b"D", 2, b"y"))


class TestPayloads:
    @given(st.dictionaries(st.text(ANY, max_size=10), JSON, max_size=5), st.binary(max_size=100))
    def test_payloads_round_trip_in_both_directions(self, value: dict[str, Any], data: bytes) -> None:
        value = json.loads(json.dumps(value))
        (frame,) = wire.Parser().feed(wire.pack(b"D", 7, value, data))
        assert frame[:2] == (b"D", 7)
        assert wire.unpack(frame[2]) == (value, data)
        assert protocol.unpack(frame[2]) == (value, data)

    def test_too_large_payloads_are_refused_before_they_are_sent(self) -> None:
        with pytest.raises(wire.ProtocolError, match="exceeds"):
            wire.pack(b"D", 1, {}, bytes(8 * 1024 * 1024))

    @pytest.mark.parametrize("part", [b"{},", b"[],", b"1,", b"1.5,", b"null,", b'"",', b'"a",', b'"[{",'])
    def test_payloads_of_a_worker_with_a_million_parts_are_refused_unread(self, part: Any) -> None:
        head = b'{"a":[' + part * (wire.MAX_REPORT // len(part)) + b"0]}"
        with pytest.raises(wire.ProtocolError, match="too many"):
            wire.check_report(struct.pack("!I", len(head)) + head)


class SocketStream:
    """A runner's stream whose other end is in the test's hands."""

    lease_s: float | None = None

    def __init__(self) -> None:
        ours, self.other = socket.socketpair()
        ours.setblocking(False)
        self._ours = ours

    @property
    def read_fd(self) -> int:
        return self._ours.fileno()

    @property
    def write_fd(self) -> int:
        return self._ours.fileno()

    def read(self, size: int, /) -> bytes | None:
        try:
            return self._ours.recv(size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def write(self, data: memoryview, /) -> int | None:
        try:
            return self._ours.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def wait_exit(self, timeout_s: float) -> str:
        return "its exit code is not known"

    def close(self) -> None:
        self._ours.close()


class FakeLauncher:
    """Starts nothing; a thread plays the runner."""

    python: str | None = None

    def __init__(self, play: Callable[[socket.socket], None]) -> None:
        self.stream = SocketStream()
        self.killed = 0
        self._thread = threading.Thread(target=self._run, args=(play,))

    def _run(self, play: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):
            play(self.stream.other)

    @property
    def engine(self) -> str:
        return "these tests"

    def launch(self, boot: str) -> SocketStream:
        self._thread.start()
        return self.stream

    def cancel(self) -> None: ...

    def kill(self) -> None:
        self.killed += 1

    def close(self) -> None:
        self.stream.other.close()
        self._thread.join(10)


HELLO = {"protocol": 1, "preload": {}, "workspace_writable": True, "uid": 0}
RESULT = {
    "outcome": "ok",
    "exit_code": 0,
    "error": None,
    "value": None,
    "duration_s": 0.1,
    "cpu_s": 0.1,
    "peak_memory": 1,
    "dropped": [0],
    "tail": [0],
    "state": "kept",
    "number": 1,
    "before": None,
    "notes": [],
    "files": [],
}


def sandbox(play: Callable[[socket.socket], None], *, grace_s: float = 5) -> tuple[RunnerClient, FakeLauncher]:
    launcher = FakeLauncher(play)
    configuration = RunnerSettings("process", "/workspace", (), 1024, True, None)
    return RunnerClient(launcher, configuration, "fake", start_timeout_s=5, grace_s=grace_s), launcher


def read_until(other: socket.socket, kind: bytes) -> int:
    """Read the host's frames up to one of a type; gives its number."""
    parser = wire.Parser()
    while True:
        for got, ident, _ in parser.feed(other.recv(65536)):
            if got == kind:
                return int(ident)


class TestFakeRunner:
    @pytest.mark.parametrize(
        "sent",
        [
            b"garbage" * 100,
            struct.pack("!cII", b"H", 0, 2**32 - 1),
            raw(b"H", 0, b"not a message"),
            raw(b"H", 0, message([])),
            raw(b"H", 0, message({})),
            raw(b"H", 0, message({"protocol": 99, "preload": {}})),
            raw(b"H", 0, message({"protocol": 1})),
            raw(b"H", 0, message({"protocol": 1, "preload": [1]})),
            raw(b"H", 0, message({"protocol": "1", "preload": {}})),
            raw(b"?", 0, message(HELLO)),
            raw(b"!", 0, message({"error": "no more"})),
            raw(b"!", 0, b""),
        ],
    )
    async def test_garbage_at_the_start_is_a_protocol_or_a_start_error(self, sent: Any) -> None:
        made, launcher = sandbox(lambda other, sent=sent: (other.sendall(sent), time.sleep(0.05))[1])  # type: ignore[misc]
        with pytest.raises((SandboxProtocolError, SandboxStartError)):
            await asyncio.wait_for(made.start(), 10)
        assert launcher.killed == 1

    async def test_fake_runner_that_hangs_up_or_is_silent_is_an_error_in_time(self) -> None:
        made, _ = sandbox(lambda other: other.close())
        with pytest.raises(SandboxStartError, match="exit code is not known"):
            await asyncio.wait_for(made.start(), 10)

    @pytest.mark.parametrize(
        "answer",
        [
            lambda ident: b"\xff" * 100,
            lambda ident: raw(b"D", ident, b"\0"),
            lambda ident: raw(b"Z", ident, message({})),
            lambda ident: raw(b"O", ident, b"x" * 1_000_000),
            lambda ident: raw(b"O", ident, b"x" * 3000) * 100,
            lambda ident: raw(b"!", 0, message({"error": 3})),
            lambda ident: raw(b"D", ident, struct.pack("!I", 100_000) + b"[" * 100_000),
        ],
    )
    async def test_fake_runner_that_answers_a_block_with_garbage_is_a_protocol_error(self, answer):
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)))
            other.sendall(answer(read_until(other, b"X")))
            time.sleep(0.2)

        made, _ = sandbox(play)
        await made.start()
        with pytest.raises(SandboxProtocolError):
            await asyncio.wait_for(made.blocks.run({}, b"", 20), 30)
        assert not made.alive
        with pytest.raises(SandboxError):
            await made.blocks.run({}, b"", 1)
        await made.stop()

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            {"size": "x"},
            {"size": -1},
            {"size": None},
            {"files": "x"},
            {"files": [{}]},
            {"files": [{"name": 3, "size": 1, "mode": 1}]},
            {"files": [{"name": "x", "size": 1.5, "mode": 1}]},
            {"error": "x"},
            {"error": "x", "errno": "y"},
        ],
    )
    async def test_fake_runner_that_answers_about_files_with_nonsense_is_a_typed_error(self, answer):
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)))
            for _ in range(2):
                other.sendall(raw(b"A", read_until(other, b"F"), message(answer)))
            time.sleep(0.2)

        made, _ = sandbox(play)
        await made.start()

        async def read() -> None:
            async for _ in made.requests.read_file("x"):
                pass

        for call in (made.requests.list_files, read):
            with pytest.raises((SandboxProtocolError, OSError)):
                await asyncio.wait_for(call(), 10)
        await made.stop()


class TestResults:
    @pytest.mark.parametrize(
        "change",
        [
            {"exit_code": float("inf")},
            {"exit_code": None},
            {"outcome": "splendid"},
            {"outcome": []},
            {"state": "new"},
            {"dropped": 3},
            {"dropped": [1], "tail": []},
            {"notes": 3},
            {"error": {"type": "x"}},
            {"error": "x"},
        ],
    )
    def test_results_that_are_wrong_are_a_protocol_error(self, change: Any) -> None:
        reply = Reply({**RESULT, **change}, b"", {})
        with pytest.raises(SandboxProtocolError, match="malformed result"):
            to_result(reply)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":[' * 40 + b"1" + b"]}" * 40, b"[[]," * 20 + b"{" * 14])
def test_messages_that_are_nested_deep_are_refused_before_anything_runs_out_of_stack(data: bytes) -> None:
    """The garbage collector may run while JSON is parsed, and with it finalizers of the host's program, which need room."""
    failed: list[object] = []

    def finalizer(_phase: str, _info: object, depth: int = 20) -> None:
        if depth:
            finalizer(_phase, _info, depth - 1)

    thresholds = gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", failed.append)
        gc.callbacks.append(finalizer)
        gc.set_threshold(1)
        try:
            with pytest.raises(SandboxProtocolError, match="nested deeper than 32, or not closed"):
                protocol.unpack(struct.pack("!I", len(data)) + data)
        finally:
            gc.callbacks.remove(finalizer)
            gc.set_threshold(*thresholds)
    assert failed == []


@pytest.mark.parametrize("text", ["[" * 200, '\\"{[' * 50, "[]{}" * 50, "\ud800["])
def test_messages_may_hold_brackets_in_their_texts(text: Any) -> None:
    message = {"files": [{"name": text, "more": [[]]}] * 100}
    data = json.dumps(message).encode()
    assert protocol.unpack(struct.pack("!I", len(data)) + data) == (message, b"")
