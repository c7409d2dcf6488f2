"""Which event loop or thread reads a stream: whoever it is, every answer reaches who waits for it, and nothing stays watched."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors import SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from autogen_codeact.sandbox.host.connection import LOAN_S, Connection, Reply
from autogen_codeact.sandbox.host.loops import CancelledBy, Promise, hand_over, within

from .test_frames import RESULT, SocketStream, message, raw, wire

DEADLINE_S = 20.0


class Played:
    """A connection to a runner that a thread plays: it answers each block by its code's words.

    `pass` is answered at once, `wait` with the next block, `garbage` with no frame, and at `end` it hangs up.
    """

    def __init__(self) -> None:
        self.stream = SocketStream()
        self.connection = Connection(self.stream, "played")
        self.readers: list[str] = []
        self._runner = threading.Thread(target=self._play)
        self._runner.start()
        self.connection.open()

    def _play(self) -> None:
        parser, late = wire.Parser(), b""
        with contextlib.suppress(OSError):
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

    def ask(self, code: bytes) -> Promise[Reply]:
        def listen(kind: bytes, data: bytes) -> None:
            self.readers.append(threading.current_thread().name)

        connection = self.connection
        return connection.request(b"X", connection.next_ident(), {}, code, output_room=100, listener=listen)

    async def block(self, code: bytes = b"pass") -> bytes:
        return bytes((await within(self.ask(code), DEADLINE_S, "no answer")).streams[b"O"])

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
    _wait_for(lambda: _descriptors() <= before)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, name="another")
    thread.start()
    return thread


THREAD = "codeact-played"
HERE = "MainThread"


class TestWhoReads:
    def test_is_the_loop_that_asks_and_the_thread_when_it_asks_no_more(self, played: Played) -> None:
        async def ask() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while HERE not in played.readers:
                    assert await played.block() == b"1\n"
                played.readers.clear()
                ident = played.connection.next_ident() + 1
                played.ask(b"wait")
                while THREAD not in played.readers:
                    await asyncio.sleep(3 * LOAN_S)
                    played.stream.other.sendall(raw(b"O", ident, b"1"))
            assert await played.block() == b"1\n"

        asyncio.run(ask())

    def test_is_each_of_several_loops_one_after_the_other(self, played: Played) -> None:
        for _ in range(3):
            assert asyncio.run(played.block()) == b"1\n"
            played.readers.clear()
        loops = [asyncio.new_event_loop() for _ in range(2)]
        for loop in loops * 3:
            assert loop.run_until_complete(played.block()) == b"1\n"
        assert set(played.readers) <= {HERE, THREAD}
        played.connection.close(DEADLINE_S)
        for loop in loops:
            # What a stopped loop still watched would be in the way of what gets its number.
            assert loop.run_until_complete(_pair_works())
            loop.close()

    def test_is_the_thread_where_a_loop_cannot_watch(self, played: Played) -> None:

        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            loop = runner.get_loop()
            loop.add_reader = _refuse  # type: ignore[method-assign]
            assert runner.run(played.block()) == b"1\n"
        assert played.readers == [THREAD]

    def test_is_another_where_the_loop_is_busy(self, played: Played) -> None:
        async def hold_up() -> None:
            await played.block()
            waiting = asyncio.ensure_future(played.block(b"wait"))
            await asyncio.sleep(0)
            thread = in_thread(lambda: asyncio.run(_several(played, 5)))
            # The loop does nothing until the other thread has its answers.
            await _blocking(thread)
            assert await waiting == b"1\n"

        async def _blocking(thread: threading.Thread) -> None:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

        asyncio.run(hold_up())
        assert len(played.readers) == 7

    def test_is_anybody_where_many_loops_ask_at_once(self, played: Played) -> None:
        threads = [in_thread(lambda: asyncio.run(_several(played, 50))) for _ in range(4)]
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(played.readers) == 200


async def _several(played: Played, count: int) -> None:
    assert await asyncio.gather(*(played.block() for _ in range(count))) == [b"1\n"] * count


async def _pair_works() -> bool:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.sendall(b"x")
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(ours, 1), DEADLINE_S) == b"x"


def _refuse(*_: Any) -> None:
    raise NotImplementedError


class TestTheEnd:
    def test_is_an_error_for_all_who_wait(self, played: Played) -> None:
        async def ask() -> list[Any]:
            await played.block()
            waiting = [asyncio.ensure_future(played.block(b"wait")) for _ in range(3)]
            await asyncio.sleep(0)
            return await asyncio.gather(played.block(b"end"), *waiting, return_exceptions=True)

        errors = asyncio.run(ask())
        assert {type(error) for error in errors} == {SandboxDied}
        assert {str(error) for error in errors} == {"the sandbox played ended: its exit code is not known"}

    def test_shows_at_once_to_a_loop_that_was_busy_when_it_came(self, played: Played) -> None:
        async def ask() -> None:
            await played.block()
            assert played.connection.alive
            played.stream.other.shutdown(socket.SHUT_RDWR)
            assert not played.connection.alive

        asyncio.run(ask())

    def test_shows_also_when_the_loop_has_ended(self, played: Played) -> None:
        asyncio.run(played.block())
        played.stream.other.shutdown(socket.SHUT_RDWR)
        assert str(played.connection.ended.result(DEADLINE_S)).startswith("the sandbox played ended")

    def test_of_the_stream_by_garbage_is_a_protocol_error(self, played: Played) -> None:
        async def ask() -> None:
            await played.block()
            with pytest.raises(SandboxProtocolError, match="announced a frame of"):
                await played.block(b"garbage")

        asyncio.run(ask())
        assert isinstance(played.connection.ended.result(DEADLINE_S), SandboxProtocolError)

    def test_comes_with_an_interrupt_in_the_middle_of_reading(self, played: Played) -> None:
        class Interrupt(KeyboardInterrupt):
            pass

        def interrupt(*_: Any) -> None:
            raise Interrupt

        async def ask() -> None:
            await played.block()
            connection = played.connection
            connection.request(b"X", connection.next_ident(), {}, b"pass", output_room=100, listener=interrupt)
            await asyncio.sleep(DEADLINE_S)

        with pytest.raises(Interrupt):
            asyncio.run(ask())
        assert "was broken off by Interrupt()" in str(played.connection.ended.result(DEADLINE_S))

    def test_by_closing_while_the_loop_reads(self, played: Played) -> None:
        async def ask() -> None:
            await played.block()
            waiting = asyncio.ensure_future(played.block(b"wait"))
            await asyncio.sleep(0)
            assert played.connection.close(DEADLINE_S)
            with pytest.raises(SandboxError, match="was stopped"):
                await waiting
            with pytest.raises(SandboxError, match="was stopped"):
                await played.block()

        asyncio.run(ask())


class TestAPromise:
    async def test_gives_a_result_or_an_error_from_here_and_from_a_thread(self) -> None:
        def in_a_thread(work: Callable[..., None], *given: Any) -> None:
            threads.append(in_thread(lambda: work(*given)))

        threads: list[threading.Thread] = []
        for settle in (asyncio.get_running_loop().call_soon, in_a_thread):
            good: Promise[int] = Promise()
            settle(good.give, 1)
            assert await within(good, DEADLINE_S, "late") == 1
            bad: Promise[int] = Promise()
            settle(bad.fail, KeyError("no"))
            with pytest.raises(KeyError, match="no"):
                await within(bad, DEADLINE_S, "late")
        for thread in threads:
            thread.join(DEADLINE_S)

    async def test_outlives_who_waits_too_long_or_is_cancelled(self) -> None:
        promise: Promise[int] = Promise()
        with pytest.raises(SandboxTimeout, match="it took too long"):
            await within(promise, 0.01, "it took too long")
        waiting = asyncio.ensure_future(within(promise, DEADLINE_S, "late"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not promise.done
        promise.give(1)
        assert await within(promise, 0, "late") == 1

    def test_outlives_the_loop(self) -> None:
        promise: Promise[int] = Promise()
        with pytest.raises(SandboxTimeout):
            asyncio.run(within(promise, 0, "late"))
        promise.give(1)
        assert promise.result() == 1

    def test_can_be_waited_for_in_a_thread(self) -> None:
        promise: Promise[int] = Promise()
        with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
            promise.result(0.01)
        thread = in_thread(lambda: promise.give(1))
        assert promise.result(DEADLINE_S) == 1
        thread.join(DEADLINE_S)


class TestCancelledBy:
    async def test_a_token_cancels_what_is_inside_and_not_the_task(self) -> None:
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.01, token.cancel)
        with pytest.raises(asyncio.CancelledError), CancelledBy(token):
            await asyncio.sleep(DEADLINE_S)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.sleep(0)

    async def test_a_token_that_is_cancelled_already_lets_nothing_begin(self) -> None:
        token = CancellationToken()
        token.cancel()
        with pytest.raises(asyncio.CancelledError), CancelledBy(token):
            pytest.fail("it began")

    async def test_another_thread_may_cancel(self) -> None:
        token = CancellationToken()
        canceller = threading.Timer(0.01, token.cancel)
        canceller.start()
        with pytest.raises(asyncio.CancelledError), CancelledBy(token):
            await asyncio.sleep(DEADLINE_S)
        canceller.join(DEADLINE_S)

    async def test_nothing_comes_afterwards(self) -> None:
        token = CancellationToken()
        with CancelledBy(token):
            # Asked for inside, but it would only come at the next await, which is outside.
            token.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def test_a_loop_that_has_gone_is_left_alone(self) -> None:
        token = CancellationToken()

        async def leave() -> None:
            with CancelledBy(token):
                await asyncio.sleep(0)

        asyncio.run(leave())
        token.cancel()


async def test_work_is_done_in_the_order_of_handing_over() -> None:
    loop, done = asyncio.get_running_loop(), []
    in_thread(lambda: hand_over(loop, done.append, 1)).join(DEADLINE_S)
    hand_over(loop, done.append, 2)
    in_thread(lambda: hand_over(loop, done.append, 3)).join(DEADLINE_S)
    hand_over(loop, done.append, 4)
    await asyncio.sleep(0)
    assert done == [1, 2, 3, 4]
