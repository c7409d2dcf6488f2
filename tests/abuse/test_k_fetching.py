"""K21 to K23. What the host fetches for code: hostile pages, names that are looked up for ever, and withdrawn hosts."""

import asyncio
import threading
from collections.abc import Awaitable, Sequence

import pytest

from codeact_sandbox.egress.connector import MAX_THREADS
from codeact_sandbox.managed_sandbox import ManagedSandbox
from codeact_sandbox.packages.pages import ProjectFile, parse_page
from tests.sandbox.egress.servers import Hosts, echo_request

from .faults import eventually
from .lag import MOST_EXCESS_S, median_excess
from .reaching import Listener, allowed, out, start
from .subject import Subject, each_engine, one_kind


# Case K21.
@each_engine
async def test_names_that_are_looked_up_for_ever_take_a_bounded_number_of_threads(subject, hosts):
    """Code that hangs up gives its place back, but the thread goes on with the name."""
    server = hosts.serve(echo_request, "ok.example")
    release = threading.Event()

    def slow(name: str) -> Sequence[str]:
        if name != "ok.example":
            release.wait(40)
        return ["127.0.0.1"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManagedSandbox, "resolve_name", staticmethod(slow))
        await start(subject, "*.slow.example:80", allowed(server), nofile=1024)

    def alive() -> int:
        # Threads of asyncio's own pool begin when they are needed, and stay.
        return sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())

    before = alive()
    code = """
    import time
    for number in range(300):
        sock = proxy()
        sock.sendall(b"GET http://n%d.slow.example/ HTTP/1.1\\r\\n\\r\\n" % number)
        time.sleep(0.005)
        sock.close()
    """
    try:
        await out(subject, code, timeout=30)
        assert alive() - before <= MAX_THREADS
    finally:
        release.set()
    await eventually(lambda: alive() <= before)
    assert await out(subject, f"print(plain('ok.example', {server.port})[:15])") == ["HTTP/1.1 200 OK"]


# Case K22.
async def test_tags_of_an_index_page_do_not_stall_the_loop() -> None:
    link = b'<a href="x-1.0.zip">x</a>'
    for name, tag in {"attributes": b"<a " + b"x=y " * 1_000_000, "a quote": b"<a x='" + b"x='" * 1_000_000}.items():

        def parse(page: bytes = link + tag + b">") -> Awaitable[list[ProjectFile]]:
            return asyncio.to_thread(parse_page, page, "https://a.test/")

        assert [file.filename for file in await parse()] == ["x-1.0.zip"], name
        assert await median_excess(parse) < MOST_EXCESS_S, name


# Case K23.
@one_kind
async def test_connections_end_when_hosts_are_withdrawn(subject: Subject, hosts: Hosts) -> None:
    """Before a session is rebuilt it may reach nothing any more, over connections that are open either."""
    listener = Listener()
    server = hosts.serve(listener, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    sock, host = proxy(), b"ok.example:{server.port}"
    sock.sendall(b"POST http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\nContent-Length: 1000\\r\\n\\r\\n" % (host, host))
    """
    await out(subject, code)
    await eventually(lambda: server.open == 1)
    client = subject.executor.sandbox.client
    assert client is not None
    assert client.gateway is not None
    client.gateway.shut()
    await eventually(lambda: server.open == 0)
    assert await out(subject, "sock.settimeout(5)\n    print(sock.recv(1))") == ["b''"]
    assert server.connections == 1
