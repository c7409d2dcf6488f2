"""Frames from whoever: of calls to host tools on both sides, and such as no host sends; and calls on every Python."""

import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import SandboxProtocolError, ToolLimits
from codeact_sandbox.host import protocol
from codeact_sandbox.tools import broker as brokers
from codeact_sandbox.tools.broker import BlockCalls, ToolBroker
from codeact_sandbox.types.observers import BlockId
from codeact_sandbox.types.run_context import NO_CONTEXT, Block
from tests.sandbox.host.test_frames import HELLO, RESULT, message, raw, read_until, sandbox
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
    async def test_host_ends_the_connection_after_frames_that_no_supervisor_sends(self, frames, monkeypatch):
        monkeypatch.setattr(brokers, "IN_FLIGHT", 3)
        monkeypatch.setattr(brokers, "CALL_BYTES", 10 * 1024)

        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)))
            ident = read_until(other, b"X")
            other.sendall(b"".join(raw(kind, ident, payload) for kind, payload in frames))
            other.recv(1)

        async def endless(thing: Any = None) -> None:
            await asyncio.Event().wait()

        endless.__name__ = "echo"
        broker = ToolBroker([Tool(endless)], ToolLimits())
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
                        "the argument 'args' of echo can't be sent to the host: set can't be written as JSON",
                    ],
                )
                assert len(heard) == 61


@needs_namespaces
class TestSupervisor:
    """The true one, of which the host would never ask such things."""

    @pytest.mark.parametrize(
        "sent",
        [
            struct.pack("!cII", b"X", 1, 2**32 - 1),
            raw(b"X", 1, b"not a message"),
            raw(b"X", 1, message([])),
            raw(b"?", 1, message({})),
            raw(b"P", 1, message({})),
        ],
    )
    def test_supervisor_reports_an_invalid_frame_and_ends(self, tmp_path: Path, sent: bytes) -> None:
        with LocalRunner(sys.executable, tmp_path) as runner:
            runner.greet()
            runner.send(sent)
            kind, _, payload = runner.receive()
            assert kind == b"!"
            assert protocol.unpack(payload)[0]["error"]
            with pytest.raises(EOFError):
                runner.receive()

    def test_supervisor_refuses_wrong_file_requests_and_goes_on(self, tmp_path: Path) -> None:
        with LocalRunner(sys.executable, tmp_path) as runner:
            runner.greet()
            wrong: list[dict[str, Any]] = [
                {},
                {"op": "x"},
                {"op": "read"},
                {"op": "read", "name": 3},
                {"op": "read", "name": "a\0b"},
                {"op": "read", "name": "x", "offset": "y"},
                {"op": "write", "name": "", "final": True},
                {"op": "write", "name": "x/", "final": True},
                {"op": "write", "name": "x" * 5000, "final": True},
            ]
            for request in wrong:
                answer, _, _ = runner.request(b"F", request, b"data")
                assert answer["error"], request
                assert answer["errno"] > 0
            # Uploads without an end are dropped in time, and their descriptors with them.
            for number in range(300):
                assert "error" not in runner.request(b"F", {"op": "write", "name": f"part{number}"}, b"x")[0]
            assert runner.run("print('next')")[1] == "next\n"
