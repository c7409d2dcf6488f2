"""K21 to K23. What the host fetches for code: hostile pages, names that are looked up for ever, and withdrawn hosts."""

import threading
from collections.abc import Sequence

import pytest

from codeact_sandbox.egress.connector import MAX_THREADS
from codeact_sandbox.managed_sandbox import ManagedSandbox
from tests.sandbox.egress.servers import echo_request

from .faults import eventually
from .reaching import allowed, out, start
from .subject import each_engine


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
