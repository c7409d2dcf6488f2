"""The connection to a runner: answers reach any event loop and thread, states, the end, floods, and waiting for futures."""

import asyncio
import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from autogen_codeact.executors import SandboxDied, SandboxError, SandboxProtocolError
from codeact_sandbox.host.connection import Connection, Reply
from codeact_sandbox.host.waiting import CrossLoopSemaphore, wait_for
from tests.sandbox.host.test_frames import HELLO, RESULT, SocketStream, message, raw, wire

DEADLINE_S = 20.0


class Played:
    """A connection to a runner that a thread plays. The code of a block says how the runner answers.

    `pass` is answered at once, `wait` together with the next block, `garbage` with no frame, and at `end` it closes the stream.
    """

    def __init__(self, stream: SocketStream | None = None) -> None:
        self.stream = stream if stream is not None else SocketStream()
        self.connection = Connection(self.stream, "played")
        self.idents = itertools.count(1)
        self._runner = threading.Thread(target=self._play)
        self._runner.start()
        self.connection.open()

    def _play(self) -> None:
        parser, late = wire.Parser(), b""
        with contextlib.suppress(OSError):
            self.stream.other.sendall(raw(b"H", 0, message(HELLO)))
            while data := self.stream.other.recv(65536):
                for kind, ident, payload in parser.feed(data):
                    answer = raw(b"O", ident, b"1\n") + raw(b"D", ident, message(RESULT))
                    if kind == b"X" and payload.endswith(b"end"):
                        self.stream.other.shutdown(socket.SHUT_RDWR)
                    elif kind == b"X" and payload.endswith(b"garbage"):
                        self.stream.other.sendall(b"\xff" * 100)
                    elif kind == b"X" and payload.endswith(b"wait"):
                        late += answer
                    elif kind == b"X":
                        self.stream.other.sendall(late + answer)
                        late = b""

    def request(self, code: bytes) -> Future[Reply]:
        connection = self.connection
        return connection.request(wire.RUN_BLOCK, next(self.idents), {}, code, output_room=100)

    async def block(self, code: bytes = b"pass") -> bytes:
        return bytes((await wait_for(self.request(code), DEADLINE_S, "no answer")).streams[wire.STDOUT])

    def close(self) -> None:
        assert self.connection.close(DEADLINE_S)
        self.stream.other.close()
        self._runner.join(DEADLINE_S)


@pytest.fixture
def played() -> Iterator[Played]:
    before = _descriptors()
    made = Played()
    yield made
    made.close()
    _wait_until(lambda: _descriptors() <= before)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


async def several(played: Played, count: int, code: bytes = b"pass") -> None:
    assert await asyncio.gather(*(played.block(code) for _ in range(count))) == [b"1\n"] * count


class TestAnswers:
    def test_answers_reach_another_event_loop_while_the_first_one_is_busy(self, played: Played) -> None:
        async def hold_up() -> None:
            await played.block()
            waiting = asyncio.ensure_future(played.block(b"wait"))
            await asyncio.sleep(0)
            thread = in_thread(lambda: asyncio.run(several(played, 5)))
            await _blocking(thread)
            assert await waiting == b"1\n"

        async def _blocking(thread: threading.Thread) -> None:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

        asyncio.run(hold_up())


class TestStates:
    @pytest.mark.parametrize("kind", [b"O", b"E", b"D", b"A", b"T", b"U"])
    def test_answer_before_the_hello_is_refused(self, kind: Any) -> None:
        error = self._error_of(raw(kind, 1, message(RESULT)))
        assert isinstance(error, SandboxProtocolError)
        assert str(error) == f"the sandbox played sent {kind!r} while connecting"

    def test_frame_of_the_host_is_refused(self) -> None:
        for kind in (b"X", b"K", b"F", b"C", b"L", b"?"):
            error = self._error_of(raw(b"H", 0, message(HELLO)) + raw(kind, 0, message({})))
            assert str(error) == f"the sandbox played sent a frame of unknown type {kind!r}"

    def _error_of(self, sent: bytes) -> SandboxError:
        stream = SocketStream()
        connection = Connection(stream, "played")
        for kind in (wire.TOOL_CALL, wire.CANCEL_CALL):
            connection.handlers[kind] = lambda _ident, _payload: None
        connection.open()
        stream.other.sendall(sent)
        error = connection.ended.result(DEADLINE_S)
        assert connection.close(DEADLINE_S)
        stream.other.close()
        return error


class TestEnd:
    def test_end_is_an_error_for_all_waiting_requests(self, played: Played) -> None:
        async def run() -> list[Any]:
            await played.block()
            waiting = [asyncio.ensure_future(played.block(b"wait")) for _ in range(3)]
            await asyncio.sleep(0)
            return await asyncio.gather(played.block(b"end"), *waiting, return_exceptions=True)

        errors = asyncio.run(run())
        assert {type(error) for error in errors} == {SandboxDied}
        assert {str(error) for error in errors} == {"the sandbox played ended: its exit code is not known"}

    def test_closing_is_an_error_for_waiting_and_later_requests(self, played: Played) -> None:
        async def run() -> None:
            await played.block()
            waiting = asyncio.ensure_future(played.block(b"wait"))
            await asyncio.sleep(0)
            assert played.connection.close(DEADLINE_S)
            with pytest.raises(SandboxError, match="was stopped"):
                await waiting
            with pytest.raises(SandboxError, match="was stopped"):
                await played.block()

        asyncio.run(run())


class TestCrossLoopSemaphore:
    async def test_cancelled_waiter_is_skipped(self) -> None:
        semaphore = CrossLoopSemaphore()

        async def enter() -> str:
            async with semaphore:
                return "entered"

        async with semaphore:
            first, second = asyncio.ensure_future(enter()), asyncio.ensure_future(enter())
            await asyncio.sleep(0)
            first.cancel()
        # The release has chosen the first one in the meantime, or the cancellation was before it.
        assert await asyncio.wait_for(second, DEADLINE_S) == "entered"
        assert first.cancelled()
        assert await asyncio.wait_for(enter(), DEADLINE_S) == "entered"
