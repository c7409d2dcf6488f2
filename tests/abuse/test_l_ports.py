"""Ports and jobs of hostile programs, on both backends."""

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.network.channels import MAX_CHANNELS

ECHO, FULL, DEAF, FLOOD, RESET = range(8001, 8006)
SERVER = f"""
import socket, struct, threading
kept = []
def echo(sock):
    with sock:
        while data := sock.recv(65536):
            sock.sendall(data)
def flood(sock):
    try:
        while True:
            sock.sendall(bytes(65536))
    except OSError:
        sock.close()
def reset(sock):
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
def accept(server, handle):
    while True:
        threading.Thread(target=handle, args=(server.accept()[0],)).start()
for port, handle in ({ECHO}, echo), ({DEAF}, kept.append), ({FLOOD}, flood), ({RESET}, reset):
    server = socket.create_server(("127.0.0.1", port), backlog=100)
    threading.Thread(target=accept, args=(server, handle)).start()
full = socket.create_server(("127.0.0.1", {FULL}), backlog=0)
kept.append(socket.create_connection(("127.0.0.1", {FULL})))  # its queue is full, and nobody takes it
print("ready", flush=True)
"""
pytestmark = pytest.mark.usefixtures("untouched")


@pytest_asyncio.fixture(params=["docker", "bubblewrap"])
async def box(request: pytest.FixtureRequest, untouched: None) -> AsyncIterator[Any]:
    request.getfixturevalue("default_image" if request.param == "docker" else "bubblewrap")
    async with AsyncSandbox(request.param, timeout=20, memory="256m", output=64 * 1024) as started:
        yield started


async def serve(box: Any) -> Any:
    """Start the server in a job, and wait for its ports."""
    job = await box.start(["python3", "-c", SERVER])
    while "ready" not in (await job.output()).stdout:
        assert job.exit_code is None, await job.output()
        await asyncio.sleep(0.02)
    return job


@contextlib.asynccontextmanager
async def connected(forward: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, which ends abruptly."""
    reader, writer = await asyncio.open_unix_connection(forward.socket)
    writer.transport.set_write_buffer_limits(0)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def stops_taking(writer: asyncio.StreamWriter) -> bool:
    """Whether a connection takes no more, long before 64 MB."""
    for _ in range(1000):
        writer.write(bytes(65536))
        try:
            await asyncio.wait_for(writer.drain(), 2)
        except TimeoutError:
            return True
    return False


async def echoes(forward: Any) -> bool:
    """Whether a connection works."""
    async with connected(forward) as (reader, writer):
        writer.write(b"hello")
        try:
            return await asyncio.wait_for(reader.readexactly(5), 10) == b"hello"
        except (OSError, asyncio.IncompleteReadError):
            return False


# Case L4.
async def test_a_job_that_floods_delays_no_block_and_fills_no_memory(box: Any) -> None:
    jobs = [await box.start(["sh", "-c", f"yes {number}{'x' * 1000} >&{1 + number % 2}"]) for number in range(4)]
    for number in range(20):
        assert (await box.run(f"{number} + 1")).value == number + 1
    for number, job in enumerate(jobs):
        output = await job.output()
        shown = (output.stdout, output.stderr)[number % 2]
        assert f"{number}xxx" in shown
        assert len(shown) < 70_000
        await job.kill()
        assert job.exit_code == 137


# Case L5.
async def test_a_port_that_never_answers_costs_only_its_own_connections(box: Any) -> None:
    await serve(box)
    full, deaf, echo, closed = [await box.forward(port) for port in (FULL, DEAF, ECHO, 9)]
    async with connected(full) as (waits, _), connected(closed) as (refused, _), connected(deaf) as (_, writer):
        assert await asyncio.wait_for(refused.read(), 10) == b""
        # What the port does not read is held back here: a window, and what sockets on the way hold.
        assert await stops_taking(writer)
        assert await echoes(echo)
        assert (await box.run("6 * 7")).value == 42
        assert await asyncio.wait_for(waits.read(), 30) == b""
    assert await echoes(echo)


def asked(url: str, host: str | None = None) -> int:
    """The status of a request; with another `Host`."""
    address = urlsplit(url)
    assert address.port
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
    try:
        connection.request("GET", "/", headers={"Host": address.netloc if host is None else host})
        return connection.getresponse().status
    finally:
        connection.close()


# Case L9.
async def test_only_who_knows_the_address_reaches_a_port(box: Any) -> None:
    await box.start(["python3", "-m", "http.server", "8000"])
    forward = await box.forward(8000)
    assert forward.socket.parent.stat().st_mode & 0o777 == 0o700
    name = urlsplit(forward.url).netloc
    for host in ("", "127.0.0.1", "localhost", "attacker.example", f"x{name}", f"{name}x", name.split(".")[0]):
        assert await asyncio.to_thread(asked, forward.url, host) == 403, host
    address = "127.0.0.1", urlsplit(forward.url).port
    silent = [await asyncio.to_thread(socket.create_connection, address, 10) for _ in range(MAX_CHANNELS + 10)]
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(ConnectionError, http.client.HTTPException):
                    assert await asyncio.to_thread(asked, forward.url) == 200
                    break
        assert await asyncio.to_thread(asked, forward.url) == 200
    finally:
        for each in silent:
            each.close()
