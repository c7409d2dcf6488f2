"""C, cases 45 and 46. Network with an allow-list: what is not on it stays out of reach, by whatever trick it is asked for."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors import SandboxCodeExecutor
from autogen_codeact.executors.tools.fetch import FetchUrlTool

from ..executors.egress.servers import Hosts, Server, answer, echo_request, hosts_in, read_request
from ..executors.sandboxes import block
from .subject import Subject

LOOPBACK = "127.0.0.0/8"
MIB = 1024 * 1024
ASK = """
    import os, socket, ssl

    def proxy():
        return socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2])), 20)

    def read(sock):
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        return answer

    def ask(request):
        with proxy() as sock:
            sock.sendall(request)
            return read(sock).partition(b"\\r\\n")[0].decode()

    def plain(host, port, path="/", named=None):
        url = f"http://{host}:{port}{path}"
        return ask(f"GET {url} HTTP/1.1\\r\\nHost: {named or f'{host}:{port}'}\\r\\n\\r\\n".encode())

    def connect(host, port):
        return ask(f"CONNECT {host}:{port} HTTP/1.0\\r\\n\\r\\n".encode())

    def tunnel(host, port):
        sock = proxy()
        sock.sendall(f"CONNECT {host}:{port} HTTP/1.0\\r\\n\\r\\n".encode())
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 200 "), head
        return sock

    def tls(host, port, name):
        context = ssl.create_default_context(cafile="/workspace/ca.pem")
        context.check_hostname = name is not None
        return context.wrap_socket(tunnel(host, port), server_hostname=name)
"""


@pytest.fixture
def hosts(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Servers on loopback; gone before the oracles look."""
    folder = tmp_path / "work"
    folder.mkdir()
    with hosts_in(folder) as made:
        monkeypatch.setattr(SandboxCodeExecutor, "resolve_name", staticmethod(made.resolve))
        yield made


async def start(subject: Subject, *entries: str, **limits: object) -> None:
    """Start the sandbox with that list."""
    await subject.start({"allow_domains": entries}, **limits)


async def out(subject: Subject, code: str, timeout: float = 20) -> list[str]:
    """What a block prints, by lines; it can use what `ASK` defines."""
    return (await subject.out(ASK + (code if code.startswith("\n") else f"\n    {code}"), timeout=timeout)).splitlines()


async def eventually(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + 10
    while not true():
        assert time.monotonic() < until, "it did not come to be so"
        await asyncio.sleep(0.02)


def allowed(server: Server, name: str = "ok.example") -> str:
    """What allows a server on loopback under that name."""
    return f"{name}:{server.port} in {LOOPBACK}"


async def test_45_control_what_is_allowed_is_reached(subject: Subject, hosts: Hosts) -> None:
    plain, secure = hosts.serve(echo_request, "ok.example"), hosts.serve(echo_request, "ok.example", tls=True)
    await start(subject, allowed(plain), allowed(secure))
    code = f"""
    print(plain("ok.example", {plain.port}))
    with tls("ok.example", {secure.port}, "ok.example") as sock:
        sock.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        print(sock.recv(15))
    """
    assert await out(subject, code) == ["HTTP/1.1 200 OK", "b'HTTP/1.1 200 OK'"]
    assert (plain.connections, secure.connections) == (1, 1)


NAMES = [
    "evil.example", "evil\0.ok.example", "evil.example%00.ok.example", "evil.example\\.ok.example", "evil.example#.ok.example",
    "evil.example/.ok.example", "ok.example.evil.example", "xok.example", "x.ok.example", "ok.example@evil.example",
    "ok.example:80@evil.example", "localhost", "localhost.", "sandbox", "127.0.0.1", "127.1", "2130706433", "0x7f000001",
    "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.", "0", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]",
    "[0:0:0:0:0:ffff:7f00:1]", "[64:ff9b::7f00:1]", "[::127.0.0.1]", "[fe80::1%lo]", "::1", "169.254.169.254", "[fd00:ec2::254]",
    "metadata.google.internal", "host.docker.internal", "172.17.0.1", "", ".", "*", "*.ok.example", "ok..example", "ok.example\t",
    "\u24de\u24da.example", "ok\u3002example", "ok.example,evil.example",
]  # fmt: skip


async def test_45_names_and_addresses_beside_the_list(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example")
    for name in ("evil.example", "localhost", "sandbox", "x.ok.example"):
        hosts.addresses[name] = ["127.0.0.1"]
    await start(subject, allowed(server))
    code = f"""
    for name in {NAMES!r}:
        print(connect(name, {server.port}).split()[1], plain(name, {server.port}).split()[1], ascii(name))
    """
    said = [line.split(" ", 2) for line in await out(subject, code)]
    assert len(said) == len(NAMES)
    assert {(first, second) for first, second, _ in said} <= {
        (first, second) for first in ("403", "400") for second in ("403", "400")
    }
    assert (server.connections, hosts.asked) == (0, [])


async def test_45_other_ports_of_an_allowed_host(subject: Subject, hosts: Hosts) -> None:
    server, other = hosts.serve(echo_request, "ok.example"), hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    for port in ({other.port}, 22, 80, 443, 0, 65536, -1, "{server.port} ", "0x50", "+{server.port}"):
        print(connect("ok.example", port).split()[1], plain("ok.example", port).split()[1])
    """
    assert set(" ".join(await out(subject, code)).split()) == {"403", "400"}
    assert (server.connections, other.connections, hosts.asked) == (0, 0, [])


async def test_45_without_the_proxy_there_is_no_network(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    import errno, urllib.request
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]
    for address in ("1.1.1.1", "169.254.169.254", "172.17.0.1", "127.0.0.1"):
        try:
            socket.create_connection((address, {server.port}), 4)
        except OSError as error:
            print(errno.errorcode[error.errno])
    try:
        urllib.request.urlopen("http://ok.example:{server.port}/", timeout=4)
    except OSError as error:
        print(type(error.reason).__name__)
    """
    assert await out(subject, code) == ["ENETUNREACH"] * 3 + ["ECONNREFUSED", "gaierror"]
    assert server.connections == 0


async def test_45_redirect_to_a_host_that_is_not_on_the_list(subject: Subject, hosts: Hosts) -> None:
    evil = hosts.serve(echo_request, "evil.example")

    def redirect(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(answer(b"", "302 Found", Location=f"http://evil.example:{evil.port}/"))

    server = hosts.serve(redirect, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    import urllib.error, urllib.request
    try:
        urllib.request.urlopen("http://ok.example:{server.port}/")
    except urllib.error.HTTPError as error:
        print(error.code, error.url)
    """
    assert await out(subject, code) == [f"403 http://evil.example:{evil.port}/"]
    assert (server.connections, evil.connections, hosts.asked) == (1, 0, ["ok.example"])


async def test_45_another_answer_to_the_same_name(subject: Subject, hosts: Hosts) -> None:
    """DNS rebinding: the name is looked up once for each connection, and each answer is checked by itself."""
    good = hosts.serve(echo_request, address=("127.0.0.2", 0))
    private = hosts.serve(echo_request, address=("127.0.0.1", good.port))
    answers: list[Sequence[str]] = [
        ["127.0.0.2"],
        ["127.0.0.1"],
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "127.0.0.2"],
    ]
    monotonous = iter(answers)
    hosts.resolve = lambda name: hosts.asked.append(name) or next(monotonous)  # type: ignore[method-assign, func-returns-value]
    subject_resolver = staticmethod(hosts.resolve)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SandboxCodeExecutor, "resolve_name", subject_resolver)
        await start(subject, f"ok.example:{good.port} in 127.0.0.2/32")
    code = f"""
    for _ in range(4):
        print(plain("ok.example", {good.port}).split()[1])
    """
    assert await out(subject, code) == ["200", "403", "403", "403"]
    assert (good.connections, private.connections, len(hosts.asked)) == (1, 0, 4)


INSIDE = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.17.0.1", "192.168.0.1", "169.254.169.254", "100.100.100.200",
    "192.0.0.192", "168.63.129.16", "224.0.0.1",
    "255.255.255.255", "::1", "::", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::7f00:1",
    "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "ff02::1",
]  # fmt: skip


async def test_45_an_allowed_name_with_an_address_inside(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(echo_request)
    for number, address in enumerate(INSIDE):
        hosts.addresses[f"n{number}.ok.example"] = [address]
        hosts.addresses[f"m{number}.ok.example"] = ["93.184.215.14", address]
    await start(subject, f"*.ok.example:{server.port}")
    code = f"""
    for number in range({len(INSIDE)}):
        print(connect(f"n{{number}}.ok.example", {server.port}))
        print(connect(f"m{{number}}.ok.example", {server.port}))
    """
    said = await out(subject, code)
    assert len(said) == 2 * len(INSIDE)
    assert all(line.startswith("HTTP/1.1 403 ") and " resolves to " in line for line in said), said
    assert server.connections == 0


class Listener:
    """Notes what comes and says nothing."""

    def __init__(self) -> None:
        self.heard = b""

    def __call__(self, sock: socket.socket) -> None:
        while data := sock.recv(65536):
            self.heard += data


async def test_45_a_tunnel_leads_to_no_other_server_name(subject: Subject, hosts: Hosts) -> None:
    listener = Listener()
    server = hosts.serve(listener, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    for name in ("evil.example", "ok.example.evil.example", "xok.example", None):
        try:
            tls("ok.example", {server.port}, name)
        except OSError as error:
            print("UNRECOGNIZED_NAME" in str(error))
    for data in (b"GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n", b"SSH-2.0-x\\r\\n", bytes(100)):
        with tunnel("ok.example", {server.port}) as sock:
            sock.sendall(data)
            print(read(sock).hex())
    """
    result = await subject.run(ASK + code, timeout=20)
    assert result.output.splitlines() == ["True"] * 4 + ["15030300020270"] * 3
    assert [each.allowed for each in result.connections] == [False] * 7
    assert result.notes[:2] == (
        f"A connection was refused: the tunnel to ok.example:{server.port} was closed: the TLS in it is for evil.example; "
        "it must name the host of the tunnel.",
        f"A connection was refused: the tunnel to ok.example:{server.port} was closed: the TLS in it is for "
        "ok.example.evil.example; it must name the host of the tunnel.",
    )
    await eventually(lambda: server.open == 0)
    assert listener.heard == b""


SECOND = """
    def hello(name):
        there = ssl.MemoryBIO()
        try:
            context = ssl.create_default_context(cafile="/workspace/ca.pem")
            context.wrap_bio(ssl.MemoryBIO(), there, server_hostname=name).do_handshake()
        except ssl.SSLWantReadError:
            return there.read()

    def retry(wait):
        with tunnel("ok.example", port) as sock:
            sock.sendall(hello("ok.example"))
            if wait:
                sock.recv(65536)
            sock.sendall(hello("evil.example"))
            return read(sock)[-7:].hex()
"""


async def test_45_the_second_hello_of_a_tunnel_has_no_other_name_either(subject: Subject, hosts: Hosts) -> None:
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ecdh_curve("secp521r1")  # so that every client has to say hello again
    context.sni_callback = lambda _sock, name, _context: names.append(name)
    hosts.ca.issue_cert("ok.example", "evil.example").configure_cert(context)

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            secure.sendall(b"reached")

    server = hosts.serve(serve, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    port = {server.port}
    print(retry(True), retry(False))
    with tls("ok.example", port, "ok.example") as sock:
        print(sock.recv(7))
    """
    assert await out(subject, SECOND + code) == ["15030300020270 15030300020270", "b'reached'"]
    await eventually(lambda: server.open == 0)
    assert "evil.example" not in names


async def test_45_another_host_behind_an_allowed_one(subject: Subject, hosts: Hosts) -> None:
    """Domain fronting in plain HTTP: by the Host header, by a second request, by a request in a body."""
    heard: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        heard.append(read_request(sock))
        sock.sendall(answer(b"first"))
        with contextlib.suppress(OSError):
            while data := sock.recv(65536):
                heard.append(data)

    server = hosts.serve(serve, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    where = "ok.example:{server.port}"
    evil = b"GET http://evil.example/ HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"
    first = f"POST http://{{where}}/ HTTP/1.1\\r\\nHost: {{where}}\\r\\n".encode()
    print(plain("ok.example", {server.port}, named="evil.example"))
    print(ask(first + b"Content-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil))
    print(ask(first + b"Content-Length: 0\\r\\nContent-Length: 99\\r\\n\\r\\n" + evil))
    print(ask(first + b"X: y\\r\\n Host: evil.example\\r\\n\\r\\n"))
    print(ask(first + b"Content-Length: 0\\r\\n\\r\\n" + evil))
    print(ask(first + b"Transfer-Encoding: chunked\\r\\n\\r\\n1\\r\\nx\\r\\n0\\r\\n\\r\\n" + evil))
    print(ask(first + b"Upgrade: h2c\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nHTTP2-Settings: x\\r\\n\\r\\n" + evil))
    """
    said = [line.split()[1] for line in await out(subject, code)]
    assert said == ["403", "400", "400", "400", "200", "200", "200"]
    await eventually(lambda: server.open == 0)
    assert not [each for each in heard if b"evil" in each or b"upgrade" in each.lower()], heard


async def test_45_two_hundred_connections_at_once(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(server), nofile=1024)
    code = f"""
    request = b"GET http://ok.example:{server.port}/ HTTP/1.1\\r\\nHost: ok.example:{server.port}\\r\\n\\r\\n"
    socks = [proxy() for _ in range(200)]
    for sock in socks:
        sock.sendall(request)
    print({{read(sock)[:15] for sock in socks}})
    """
    assert await out(subject, code, timeout=40) == ["{b'HTTP/1.1 200 OK'}"]
    assert server.connections == 200


async def test_45_requests_that_never_end(subject: Subject, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """They give their places back in the end, also where their sender goes on, byte by byte."""
    monkeypatch.setattr("autogen_codeact.executors.egress.serve.HEAD_TIMEOUT_S", 1.0)
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


async def test_45_a_head_without_end(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    try:
        print(ask(b"GET http://ok.example:{server.port}/ HTTP/1.1\\r\\nX: " + b"x" * 10_000_000))
    except OSError as error:
        print(type(error).__name__)
    """
    (said,) = await out(subject, code)
    assert said in (
        "HTTP/1.1 400 the sandbox's proxy does not take this request: its head is longer than 65536 bytes",
        "ConnectionResetError",
        "BrokenPipeError",
    )
    assert server.connections == 0


async def test_45_a_server_that_never_answers(subject: Subject, hosts: Hosts) -> None:
    listener = Listener()
    server = hosts.serve(listener, "ok.example")
    await start(subject, allowed(server))
    result = await subject.run(f"{ASK}\n    plain('ok.example', {server.port})", timeout=2)
    assert (result.outcome, result.exit_code) == ("timeout", 124)
    await eventually(lambda: server.open == 0)
    assert server.connections == 1


async def test_45_a_name_that_is_looked_up_for_ever(subject: Subject, hosts: Hosts) -> None:
    """The block's end calls the connection off; an answer that comes later makes none."""
    server = hosts.serve(echo_request, "ok.example")
    asked, release = threading.Event(), threading.Event()

    def slow(name: str) -> Sequence[str]:
        asked.set()
        release.wait(30)
        return ["127.0.0.1"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SandboxCodeExecutor, "resolve_name", staticmethod(slow))
        await start(subject, allowed(server))
    try:
        result = await subject.run(f"{ASK}\n    plain('ok.example', {server.port})", timeout=1)
        assert result.outcome == "timeout"
        assert asked.is_set()
        await asyncio.sleep(1.5)  # until the supervisor has seen that nobody is left
    finally:
        release.set()
    assert await out(subject, "print('next')") == ["next"]
    assert server.connections == 0


async def test_45_connections_end_with_their_process(subject: Subject, hosts: Hosts) -> None:
    listener = Listener()
    server = hosts.serve(listener, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    kept = tunnel("ok.example", {server.port})
    kept.sendall(hello("ok.example"))
    """
    await out(subject, SECOND + code)
    await eventually(lambda: len(listener.heard) > 100)
    if subject.session:
        assert server.open == 1
        await out(subject, "kept.close()")
    await eventually(lambda: server.open == 0)
    killed = f"""
    kept = tunnel("ok.example", {server.port})
    kept.sendall(hello("ok.example"))
    kept.shutdown(socket.SHUT_WR)
    if os.fork() == 0:
        os.setsid()
    while True:
        pass
    """
    result = await subject.run(ASK + SECOND + killed, timeout=2)
    assert result.outcome == "timeout"
    await eventually(lambda: server.open == 0)
    assert server.connections == 2


async def test_45_half_closed_connections(subject: Subject, hosts: Hosts) -> None:
    """Who has said all still hears the answer; once the hello has passed, the server may speak whatever it likes."""
    got = bytearray()

    def serve(sock: socket.socket) -> None:
        got.extend(sock.recv(65536))
        sock.sendall(b"hello")
        while data := sock.recv(65536):
            got.extend(data)
        sock.sendall(b"x" * MIB)

    server = hosts.serve(serve, "ok.example")
    await start(subject, allowed(server))
    code = f"""
    with tunnel("ok.example", {server.port}) as sock:
        sock.sendall(hello("ok.example"))
        print(sock.recv(5))
        sock.sendall(b"y" * 300_000)
        sock.shutdown(socket.SHUT_WR)
        print(len(read(sock)))
    """
    assert await out(subject, SECOND + code) == ["b'hello'", str(MIB)]
    assert bytes(got).endswith(b"y" * 300_000)
    await eventually(lambda: server.open == 0)


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


async def test_45_a_download_holds_up_no_result(subject: Subject, hosts: Hosts) -> None:
    """200 MB and more go through while blocks run; that memory stays flat is for the fifth oracle to say."""
    flood = Flood(200 * MIB)
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
        subject.executor._timeout = 50
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


async def test_45_an_upload_and_a_reader_that_does_not_read(subject: Subject, hosts: Hosts) -> None:
    """A server that does not read stops its sender, a sender whose answers nobody reads its server, and neither stops others."""
    flood, deaf = Flood(200 * MIB), threading.Event()
    flooding = hosts.serve(flood, "flood.example", tls=True)
    silent = hosts.serve(lambda sock: bool(deaf.wait(50)) and None, "deaf.example", tls=True)
    server = hosts.serve(echo_request, "ok.example")
    await start(subject, allowed(flooding, "flood.example"), allowed(silent, "deaf.example"), allowed(server))
    code = f"""
    unread = tls("flood.example", {flooding.port}, "flood.example")
    unread.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    unheard = tls("deaf.example", {silent.port}, "deaf.example")
    unheard.settimeout(1)
    try:
        while True:
            unheard.sendall(bytes(65536))
    except TimeoutError:
        print("stopped")
    print(plain("ok.example", {server.port}))
    """
    try:
        assert await out(subject, code, timeout=30) == ["stopped", "HTTP/1.1 200 OK"]
        assert flood.sent < 32 * MIB
    finally:
        flood.stop.set()
        deaf.set()


async def test_46_a_tool_that_fetches_does_not_reach_the_hosts_own_network(subject: Subject, hosts: Hosts) -> None:
    """The calls are made on the host, which could reach all of it: the list and the addresses are checked there, too."""
    server, inside = hosts.serve(echo_request, "ok.example"), hosts.serve(echo_request)
    for number, address in enumerate(INSIDE):
        hosts.addresses[f"n{number}.inside.example"] = [address]
    tool = FetchUrlTool([allowed(server), f"*.inside.example:{inside.port}"], resolve=hosts.resolve)
    await subject.start({"tools": [tool]})
    names = [*NAMES, *[f"n{number}.inside.example" for number in range(len(INSIDE))]]
    code = f"""
    print(fetch_url("http://ok.example:{server.port}/")[:14])
    for url in [f"http://{{name}}:{inside.port}/" for name in {names!r}] + ["file:///etc/passwd", "http:///etc/passwd"]:
        try:
            print(fetch_url(url))
        except Exception:
            print("refused")
    """
    assert await out(subject, code) == ["GET / HTTP/1.1"] + ["refused"] * (len(names) + 2)
    assert (server.connections, inside.connections) == (1, 0)
