"""Forwarded ports, on both backends and in both modes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from codeact_sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxDied,
    SandboxProtocolError,
    Unsupported,
)
from codeact_sandbox.network.channels import FIRST_OF_HOST
from codeact_sandbox.session.ports import Forward, Ports
from tests.sandbox.host.test_frames import HELLO, message, raw, sandbox
from tests.sandbox.test_exec import KINDS

UPPER = """
import socketserver
class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read().upper())
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("127.0.0.1", 8000), Upper)
"""


@pytest_asyncio.fixture(params=KINDS, ids="-".join)
async def box(request: pytest.FixtureRequest) -> AsyncIterator[AsyncSandbox]:
    backend, mode = request.param
    request.getfixturevalue("sandbox_image" if backend == "docker" else backend)
    async with AsyncSandbox(backend, mode=mode, timeout=30) as started:
        yield started


async def ask(forward: Forward, text: bytes) -> bytes:
    """Send a text and its end, and return the answer; empty if nobody listens."""
    reader, writer = await asyncio.open_unix_connection(forward.socket)
    try:
        writer.write(text)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def answer(forward: Forward, text: bytes) -> bytes:
    """Ask until somebody listens."""
    while not (found := await ask(forward, text)):
        pass
    return found


async def test_a_port_of_a_job_is_reached_until_it_is_closed(box: AsyncSandbox) -> None:
    async with await box.forward(8000) as forward:
        assert await ask(forward, b"too early") == b""
        job = await box.start(["python3", "-c", f"{UPPER}\nserver.serve_forever()"])
        assert await answer(forward, b"hello") == b"HELLO"
        assert await answer(forward, bytes(3_000_000)) == bytes(3_000_000)
        address = urlsplit(forward.url)
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        request = f"GET / HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()
        writer.write(request)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == request.upper()
        writer.close()
        other = await box.forward(8000)
        assert other.url != forward.url
        await other.close()
        assert await ask(forward, b"still") == b"STILL"
        await job.kill()
        assert await ask(forward, b"gone") == b""
    await forward.close()
    assert not forward.socket.parent.exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", address.port)


@pytest.mark.parametrize("box", [kind for kind in KINDS if "session" in kind], ids="-".join, indirect=True)
async def test_a_port_of_a_process_that_a_session_has_left_is_reached(box: AsyncSandbox) -> None:
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', '''{UPPER}\nserver.serve_forever()'''])"
    assert (await box.run(code)).outcome == "ok"
    forward = await box.forward(8000)
    assert await answer(forward, b"left") == b"LEFT"
    code = f"{UPPER.replace('8000', '8001')}\nimport threading\nthreading.Thread(target=server.serve_forever).start()"
    assert (await box.run(code)).outcome == "ok"
    assert await answer(await box.forward(8001), b"thread") == b"THREAD"
    with pytest.raises(Unsupported, match="ports are forwarded"):
        async with box.branch():
            pass
    old = forward
    await box.restart()
    assert not old.socket.exists()
    await old.close()
    with pytest.raises(SandboxDied, match="the sandbox has ended, and its ports with it"):
        await old._ports.call(old._ports.listen(8000))


@pytest.mark.usefixtures("bubblewrap")
def test_a_sandbox_that_waits_has_ports_that_end_with_it() -> None:
    before = threading.active_count()
    with Sandbox("bubblewrap") as box:
        box.start(["python3", "-c", f"{UPPER}\nserver.serve_forever()"])
        with box.forward(8000) as forward:
            assert forward.port == 8000
            assert asyncio.run(answer(forward, b"hello")) == b"HELLO"
        again = box.forward(8000)
    assert not again.socket.exists()
    again.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "sent",
    [
        raw(b"N", FIRST_OF_HOST, message({"op": "open"})),
        raw(b"N", FIRST_OF_HOST, message({"op": "data"}, b"x")),
        raw(b"N", 1, message({"op": "close"})),
    ],
)
async def test_a_sandbox_that_opens_a_channel_of_the_host_is_ended(sent: Any) -> None:
    ready = threading.Event()

    def play(other, sent=sent, ready=ready):  # type: ignore[no-untyped-def]
        other.sendall(raw(b"H", 0, message(HELLO)))
        ready.wait(10)
        other.sendall(sent)
        while other.recv(65536):
            pass

    made, _ = sandbox(play)
    await made.start()
    ports = made.ports = Ports()
    assert made.requests.connection is not None
    ports.attach(made.requests.connection, "test")
    ready.set()
    with pytest.raises(SandboxProtocolError):
        await asyncio.wait_for(made.blocks.run({}, b"", 5), 10)
    await made.stop()
