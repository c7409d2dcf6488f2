"""C, case 45. Network with an allow-list: what is not on it stays out of reach, by whatever trick it is asked for."""

import socket
from collections.abc import Sequence

import pytest

from codeact_sandbox.async_sandbox import AsyncSandbox
from tests.sandbox.egress.servers import Hosts, answer, echo_request, read_request

from .faults import eventually
from .reaching import ASK, HELLO, Listener, allowed, out, start
from .subject import Subject, each_engine, one_kind

NAMES = [
    "evil.example", "evil\0.ok.example", "evil.example%00.ok.example", "ok.example.evil.example", "xok.example", "x.ok.example",
    "ok.example@evil.example", "localhost", "sandbox", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "[::1]",
    "[::ffff:127.0.0.1]", "169.254.169.254", "", "*.ok.example", "ok\u3002example",
]  # fmt: skip


# Case 45.
@one_kind
async def test_names_addresses_and_ports_beside_the_list(subject: Subject, hosts: Hosts) -> None:
    server, other = hosts.serve(echo_request, "ok.example"), hosts.serve(echo_request, "ok.example")
    for name in ("evil.example", "localhost", "sandbox", "x.ok.example"):
        hosts.addresses[name] = ["127.0.0.1"]
    await start(subject, allowed(server))
    code = f"""
    places = [(name, {server.port}) for name in {NAMES!r}]
    ports = ({other.port}, 22, 80, 443, 0, 65536, -1, "{server.port} ", "0x50", "+{server.port}")
    for name, port in [*places, *[("ok.example", port) for port in ports]]:
        print(connect(name, port).split()[1], plain(name, port).split()[1], ascii((name, port)))
    """
    said = [line.split(" ", 2) for line in await out(subject, code)]
    assert len(said) == len(NAMES) + 10
    assert [place for first, second, place in said if not {first, second} <= {"403", "400"}] == []
    assert (server.connections, other.connections, hosts.asked) == (0, 0, [])


# Case 45.
@each_engine
async def test_without_the_proxy_there_is_no_network(subject: Subject, hosts: Hosts) -> None:
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


# Case 45.
@one_kind
async def test_redirect_to_a_host_that_is_not_on_the_list(subject: Subject, hosts: Hosts) -> None:
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


# Case 45.
@one_kind
async def test_another_answer_to_the_same_name(subject: Subject, hosts: Hosts) -> None:
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
        patch.setattr(AsyncSandbox, "resolve_name", subject_resolver)
        await start(subject, f"ok.example:{good.port} in 127.0.0.2/32")
    code = f"""
    for _ in range(4):
        print(plain("ok.example", {good.port}).split()[1])
    """
    assert await out(subject, code) == ["200", "403", "403", "403"]
    assert (good.connections, private.connections, len(hosts.asked)) == (1, 0, 4)


# Case 45.
@one_kind
async def test_a_tunnel_leads_to_no_other_server_name(subject: Subject, hosts: Hosts) -> None:
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
    assert await out(subject, HELLO + code) == ["b'heard'"]
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
    result = await subject.run(ASK + HELLO + killed, timeout=4)
    assert result.outcome == "timeout"
    await eventually(lambda: server.open == 0)
    assert server.connections == 2
