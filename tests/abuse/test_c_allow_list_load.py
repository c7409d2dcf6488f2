"""C, case 45. Network with an allow-list under load: floods, silence, half-closed and endless connections, and their ends."""

import asyncio
import socket
import threading

import pytest
from autogen_core import CancellationToken

from tests.sandbox.egress.servers import Hosts, echo_request, read_request
from tests.sandbox.sandboxes import block

from .faults import eventually
from .reaching import ASK, MIB, SECOND, Listener, allowed, out, start
from .subject import Subject, each_engine


# Case 45.
@each_engine
async def test_more_connections_at_once_than_there_are_places(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(server), nofile=1024)
    code = f"""
    request = b"GET http://ok.example:{server.port}/ HTTP/1.1\\r\\nHost: ok.example:{server.port}\\r\\n\\r\\n"
    socks = [proxy() for _ in range(130)]
    for sock in socks:
        sock.sendall(request)
    print({{read(sock)[:15] for sock in socks}})
    """
    assert await out(subject, code, timeout=40) == ["{b'HTTP/1.1 200 OK'}"]
    assert server.connections == 130


# Case 45.
@each_engine
async def test_requests_that_never_end(subject: Subject, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """They give their places back in the end, also where their sender goes on, byte by byte."""
    monkeypatch.setattr("codeact_sandbox.egress.http_proxy.HEAD_TIMEOUT_S", 1.0)
    server = hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(server), nofile=1024)
    code = f"""
    import threading, time
    slow = [proxy() for _ in range(100)]
    def trickle():
        while True:
            for sock in slow:
                try:
                    sock.send(b"G")
                except OSError:
                    pass
            time.sleep(0.1)
    threading.Thread(target=trickle, daemon=True).start()
    time.sleep(0.3)
    print(plain("ok.example", {server.port}))
    """
    assert await out(subject, code, timeout=40) == ["HTTP/1.1 200 OK"]


# Case 45.
@each_engine
async def test_connections_end_with_their_process(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(Listener(b"heard"), "ok.example")
    await start(subject, allowed(server))
    code = f"""
    kept = tunnel("ok.example", {server.port})
    kept.sendall(hello("ok.example"))
    print(kept.recv(5))
    """
    assert await out(subject, SECOND + code) == ["b'heard'"]
    if subject.session:
        assert server.open == 1
        await out(subject, "kept.close()")
    await eventually(lambda: server.open == 0)
    killed = f"""
    import signal
    kept = tunnel("ok.example", {server.port})
    kept.sendall(hello("ok.example"))
    kept.shutdown(socket.SHUT_WR)
    if os.fork() == 0:
        os.setsid()
    while True:
        signal.pause()
    """
    result = await subject.run(ASK + SECOND + killed, timeout=4)
    assert result.outcome == "timeout"
    await eventually(lambda: server.open == 0)
    assert server.connections == 2


class Flood:
    """Sends until it has sent enough and is told to stop."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.stop = threading.Event()
        self.sent = 0

    def __call__(self, sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not self.stop.is_set() or self.sent < self.enough:
            sock.sendall(bytes(65536))
            self.sent += 65536


DOWNLOAD = """
    def download(port, path):
        total = 0
        with tls("ok.example", port, "ok.example") as sock:
            sock.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
            while piece := sock.recv(65536):
                total += len(piece)
        with open(path, "w") as file:
            file.write(str(total))
"""


# Case 45.
@each_engine
async def test_a_download_holds_up_no_result(subject: Subject, hosts: Hosts) -> None:
    """40 MB and more go through while blocks run; that memory stays flat is for the fifth oracle to say."""
    flood = Flood(40 * MIB)
    server = hosts.serve(flood, "ok.example", tls=True)
    await start(subject, allowed(server))
    code = f"download({server.port}, '/workspace/total')"
    running = None
    if subject.session:
        in_thread = (
            f"import threading\n    downloading = threading.Thread(target=lambda: {code})\n    downloading.start()"
        )
        await out(subject, f"{DOWNLOAD}\n    {in_thread}")
    else:
        subject.executor.sandbox.timeout = 50
        whole = block(f"{ASK}{DOWNLOAD}\n    {code}")
        running = asyncio.ensure_future(subject.executor.execute_code_blocks([whole], CancellationToken()))
    await eventually(lambda: flood.sent > 4 * MIB)
    for number in range(20):
        before = flood.sent
        assert await subject.out(f"print('small', {number})", timeout=10) == f"small {number}\n"
        assert flood.sent >= before
    assert server.open == 1
    flood.stop.set()
    if running is not None:
        assert (await running).outcome == "ok"
    else:
        await out(subject, "downloading.join()", timeout=50)
    total = await out(subject, "print(open('/workspace/total').read())")
    assert int(total[0]) == flood.sent + len(b"HTTP/1.1 200 OK\r\n\r\n")
