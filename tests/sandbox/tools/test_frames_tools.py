"""Frames of calls to host tools from whoever, on both sides; and the runner's side of calls on every Python."""

import asyncio
import contextlib
import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autogen_codeact.executors import SandboxProtocolError, ToolLimits
from codeact_sandbox.host import protocol
from codeact_sandbox.tools.broker import BlockCalls, ToolBroker
from codeact_sandbox.tools.payloads import read_call
from codeact_sandbox.types.observers import BlockId
from codeact_sandbox.types.run_context import NO_CONTEXT, Block
from tests.cases import case
from tests.sandbox.host.test_frames import HELLO, JSON, RESULT, message, raw, read_until, sandbox
from tests.sandbox.runner.local_runner import LocalRunner
from tests.sandbox.runner.test_runner_old_python import VERSIONS, needs_namespaces, python
from tests.sandbox.tools.host_tools import Tool

__all__ = ["python"]

BLOCK = (Block("pass", "python"), NO_CONTEXT, BlockId())


async def echo(thing: Any = None) -> Any:
    """Give it back."""
    return thing


def calls(**limits: Any) -> BlockCalls:
    return BlockCalls(ToolBroker([Tool(echo)], ToolLimits(**limits)), *BLOCK)


def call(number: int, payload: bytes | None = None, **arguments: Any) -> bytes:
    body = json.dumps({"name": "echo", "arguments": arguments}).encode() if payload is None else payload
    return struct.pack("!I", number) + body


class TestHost:
    @given(st.binary(max_size=300))
    @settings(max_examples=300)
    def test_host_reads_any_payload_as_a_call_or_refuses_it(self, payload: bytes) -> None:
        with contextlib.suppress(ValueError):
            request = asyncio.run(read_call(payload, 2))
            assert isinstance(request.name, str)
            assert isinstance(request.copies[0], dict)

    @given(st.dictionaries(st.sampled_from(["name", "arguments", "other"]), JSON | st.just("echo"), max_size=3))
    @settings(max_examples=200)
    def test_host_reads_any_json_as_a_call_or_refuses_it(self, thing: dict[str, Any]) -> None:
        with contextlib.suppress(ValueError):
            request = asyncio.run(read_call(json.dumps(thing).encode(), 2))
            assert (request.name, request.copies[0]) == (thing["name"], thing["arguments"])

    async def test_host_refuses_a_call_with_too_many_arguments(self) -> None:
        def payload(count: int) -> bytes:
            return json.dumps({"name": "echo", "arguments": {f"a{n}": n for n in range(count)}}).encode()

        most = await read_call(payload(1000), 2)
        assert [len(copy) for copy in most.copies] == [1000, 1000]
        with pytest.raises(ValueError, match=r"^the call has 1,001 arguments; at most 1,000 can be sent$"):
            await read_call(payload(1001), 2)

    async def test_host_answers_each_call_once_whatever_it_holds(self) -> None:
        made, sent = calls(in_flight=256), list[bytes]()
        made.send = sent.append
        payloads = [
            b"",
            b"{",
            b"\xff",
            b"[]",
            b"null",
            b"3",
            b'{"name":"echo"}',
            b'{"name":3,"arguments":{}}',
            b"[" * 9999,
        ]
        for number, payload in enumerate(payloads):
            made.on_frame(b"T", call(number, payload))
            made.on_frame(b"U", struct.pack("!I", number))
            made.on_frame(b"U", struct.pack("!I", number))
        async with asyncio.timeout(10):
            while len(sent) < len(payloads):  # noqa: ASYNC110 - what is waited for is not an event of ours
                await asyncio.sleep(0.01)
        await made.close()
        assert sorted(struct.unpack("!I", answer[:4])[0] for answer in sent) == list(range(len(payloads)))
        assert all("error" in json.loads(answer[4:]) for answer in sent)

    async def test_host_ignores_calls_of_a_block_that_has_ended(self) -> None:
        made, sent = calls(), list[bytes]()
        made.send = sent.append
        made.on_frame(b"T", call(1, thing=1))
        await made.close()
        made.on_frame(b"T", call(2, thing=2))
        await asyncio.sleep(0.05)
        assert sent == []

    @pytest.mark.parametrize(
        "frames",
        [
            [(b"T", b"")],
            [(b"T", b"\0\0\0")],
            [(b"U", b"\0")],
            [(b"T", call(1, b"x" * 10_241))],
            [(b"T", call(7, thing=1)), (b"T", call(7, thing=1))],
            [(b"T", call(number, thing=1)) for number in range(4)],
        ],
        ids=["empty", "no number", "no number in U", "too long", "twice the same", "too many at once"],
    )
    async def test_host_ends_the_connection_after_frames_that_no_supervisor_sends(self, frames):
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)))
            ident = read_until(other, b"X")
            other.sendall(b"".join(raw(kind, ident, payload) for kind, payload in frames))
            other.recv(1)

        async def endless(thing: Any = None) -> None:
            await asyncio.Event().wait()

        endless.__name__ = "echo"
        broker = ToolBroker([Tool(endless)], ToolLimits(in_flight=3, call_bytes="10k"))
        taking = BlockCalls(broker, *BLOCK)
        made, _ = sandbox(play)
        await made.start()
        with pytest.raises(SandboxProtocolError, match=r"sent (a call of|more calls at once)"):
            await asyncio.wait_for(made.blocks.run({}, b"", 5, None, taking), 10)
        await taking.close()
        await made.stop()

    async def test_host_ignores_calls_of_blocks_that_are_not_there_or_have_no_tools(self) -> None:
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)))
            ident = read_until(other, b"X")
            for kind in (b"T", b"U"):
                other.sendall(raw(kind, 4711, call(1)) + raw(kind, ident, call(1)) + raw(kind, 0, b""))
            other.sendall(raw(b"D", ident, message(RESULT)))
            other.recv(1)

        made, _ = sandbox(play)
        await made.start()
        assert (await asyncio.wait_for(made.blocks.run({}, b"", 5), 10)).message == RESULT
        await made.stop()


def source(name: str) -> list[str]:
    return [name, f"def {name}(*args, **kwargs):\n    return _call({name!r}, {{'args': args, **kwargs}})\n"]


TOOLS = {"sources": [source("echo"), source("other")], "in_flight": 4, "call_bytes": 10_000}


def run(
    runner: LocalRunner, code: str, answer: Callable[[int, bytes], bytes | None], *, timeout: float = 10
) -> tuple[dict[str, Any], str, list[bytes]]:
    """Run a block and answer its calls; `answer` gets the block's number and the payload, and gives what is sent back."""
    ident, output, heard = int(time.monotonic() * 1000) % 2**31, b"", []
    path = str(Path(runner.config["workspace"]) / "block.py") if runner.config["mode"] == "process" else None
    request = {"path": path, "command": None, "timeout": timeout, "tools": True}
    runner.send(protocol.pack(b"X", ident, request, code.encode()))
    while True:
        kind, got, payload = runner.receive()
        if kind == b"!":
            raise EOFError(protocol.unpack(payload)[0]["error"])
        assert got == ident
        if kind == b"O":
            output += payload
        elif kind in (b"T", b"U"):
            heard.append(kind + payload)
            reply = answer(ident, payload) if kind == b"T" else None
            if reply is not None:
                runner.send(reply)
        else:
            assert kind == b"D"
            return protocol.unpack(payload)[0], output.decode(), heard


def give_back(ident: int, payload: bytes) -> bytes:
    """What the host would answer to `echo`."""
    value = json.dumps({"value": json.loads(payload[4:])["arguments"]["args"]}).encode()
    return raw(b"T", ident, payload[:4] + value)


@needs_namespaces
class TestRunner:
    @pytest.mark.parametrize("mode", ["process", "session"])
    def test_runner_calls_on_every_python(self, python: str, tmp_path: Path, mode: str) -> None:
        assert VERSIONS
        code = """
import asyncio, inspect, threading
from host_tools import echo as plain, ToolError
print(plain is echo, echo(1, "a"), inspect.iscoroutinefunction(echo.aio))
async def main():
    return await asyncio.gather(*(echo.aio(n) for n in range(40)))
print(asyncio.run(main()) == [[n] for n in range(40)])
got = []
threads = [threading.Thread(target=lambda n=n: got.append(echo(n)[0])) for n in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(got) == list(range(20)))
try: echo({1, 2})
except TypeError as error: print(error)
"""
        with LocalRunner(python, tmp_path, mode=mode, tools=TOOLS) as runner:
            assert runner.greet()["tools"] == {}
            for _ in range(2):
                result, output, heard = run(runner, code, give_back)
                assert (result["outcome"], output.splitlines()) == (
                    "ok",
                    [
                        "True [1, 'a'] True",
                        "True",
                        "True",
                        "the argument 'args' of echo can't be sent to the host: set is no JSON",
                    ],
                )
                assert len(heard) == 61

    def test_runner_names_the_broken_tool(self, tmp_path: Path) -> None:
        tools = {**TOOLS, "sources": [source("echo"), ["bad", "def bad(:"], ["none", "x = 1"], ["late", "1 / 0"]]}
        with LocalRunner(sys.executable, tmp_path, mode="session", tools=tools) as runner:
            problems = runner.greet()["tools"]
        assert set(problems) == {"bad", "none", "late"}
        assert problems["late"] == "ZeroDivisionError: division by zero"

    def test_runner_ignores_answers_that_nobody_waits_for(self, tmp_path: Path) -> None:
        def answer(ident: int, payload: bytes) -> bytes:
            head = payload[:4]
            others = [raw(b"T", ident + 1, head + b"{}"), raw(b"T", 0, head + b"{}")]  # no such block
            others.append(raw(b"T", ident, struct.pack("!I", 4711) + b'{"value":"wrong"}'))  # no such call
            return b"".join([*others, give_back(ident, payload), give_back(ident, payload)])

        with LocalRunner(sys.executable, tmp_path, mode="session", tools=TOOLS) as runner:
            runner.greet()
            for _ in range(2):
                assert run(runner, "print(echo(1), echo(2))", answer)[:2][1] == "[1] [2]\n"

    def test_runner_turns_an_invalid_answer_into_an_exception(self, tmp_path: Path) -> None:
        code = "try: echo(1)\nexcept Exception as error: print('raised')\nprint('goes on')"
        with LocalRunner(sys.executable, tmp_path, mode="session", tools=TOOLS) as runner:
            runner.greet()
            for body in (b"", b"{", b"\xff", b"[]", b"{}", b'{"error":3}', b'{"error":{}}', b"[" * 100_000):
                with case(body):
                    answer = run(runner, code, lambda ident, payload, body=body: raw(b"T", ident, payload[:4] + body))
                    assert answer[1] == "raised\ngoes on\n"
                    assert run(runner, "print(echo(1))", give_back)[1] == "[1]\n"

    def test_runner_gives_up_on_an_answer_without_a_number(self, tmp_path: Path) -> None:
        with LocalRunner(sys.executable, tmp_path, mode="session", tools=TOOLS) as runner:
            runner.greet()
            with pytest.raises(EOFError, match="an answer to a call without its number"):
                run(runner, "echo(1)", lambda ident, _: raw(b"T", ident, b"\0"))

    def test_runner_sends_no_more_calls_at_once_than_it_was_told(self, tmp_path: Path) -> None:
        open_calls: list[bytes] = []
        most = 0

        def answer(ident: int, payload: bytes) -> bytes | None:
            nonlocal most
            open_calls.append(payload)
            most = max(most, len(open_calls))
            # Two at once, so that two are always on their way.
            if len(open_calls) < 3:
                return None
            return give_back(ident, open_calls.pop(0)) + give_back(ident, open_calls.pop(0))

        code = """
import asyncio
async def main():
    tasks = [asyncio.ensure_future(echo.aio(n)) for n in range(2000)]
    while sum(task.done() for task in tasks) <= 100: await asyncio.sleep(0.01)
    print(True)
    for task in tasks: task.cancel()
asyncio.run(main())
"""
        with LocalRunner(sys.executable, tmp_path, mode="session", tools=TOOLS) as runner:
            runner.greet()
            result, output, _ = run(runner, code, answer)
        assert (result["outcome"], output) == ("ok", "True\n")
        assert most <= 4

    def test_runner_drops_calls_that_nobody_waits_for(self, tmp_path: Path) -> None:
        code = """
import asyncio
async def main():
    for n in range(3):
        try: await asyncio.wait_for(echo.aio(n), 0.05)
        except asyncio.TimeoutError: pass
    await asyncio.sleep(0.1)
asyncio.run(main())
"""
        with LocalRunner(sys.executable, tmp_path, mode="session", tools=TOOLS) as runner:
            runner.greet()
            result, _, heard = run(runner, code, lambda *_: None)
        assert result["outcome"] == "ok"
        assert [word[:1] for word in heard] == [b"T", b"U"] * 3
        assert [word[1:5] for word in heard[::2]] == [word[1:5] for word in heard[1::2]]
