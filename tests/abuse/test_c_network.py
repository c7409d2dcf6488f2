"""C. Network: there is none (39 to 44), or only what an allow-list names (45), by whatever trick more is asked for."""

import re
import socket
from collections.abc import Sequence

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from codeact_sandbox.session.async_sandbox import AsyncSandbox
from tests.sandbox.network.servers import Hosts, answer, echo_request, read_request
from tests.sandbox.sandboxes import run

from .canaries import Canaries, host_addresses
from .faults import eventually
from .reaching import ASK, HELLO, Listener, allowed, out, start
from .subject import Subject, each_engine, one_kind


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


TRY = """
    import errno, socket

    def attempt(family, kind, address, protocol=0):
        try:
            with socket.socket(family, kind, protocol) as made:
                made.settimeout(4)
                made.connect(address)
                made.send(b"out")
                return "reached"
        except TimeoutError:
            return "timed out"
        except OSError as error:
            return errno.errorcode.get(error.errno, repr(error))
"""
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.215.14"]
# Of clouds' metadata services, and of the gateways of bridges.
INNER = [
    "169.254.169.254", "169.254.170.2", "169.254.169.253", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    "172.17.0.1", "172.18.0.1", "10.0.0.1", "10.0.2.2", "10.88.0.1", "192.168.0.1", "192.168.65.2",
]  # fmt: skip
INNER_6 = ["fd00:ec2::254", "fd20:ce::254"]
UNREACHABLE = {"ENETUNREACH"}
# Where IPv6 is there but has no address, or is not there at all.
UNREACHABLE_6 = {"ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"}


async def attempts(subject: Subject, calls: str, timeout: float = 20) -> set[str]:
    """What became of attempts: an expression for a list of calls of `attempt`."""
    output = await subject.out(f"{TRY}\n    print(*sorted(set({calls})))", timeout=timeout)
    return set(output.split())


def others() -> list[str]:
    """Addresses of the host and of the world, inner ones included, from none of which a sandbox has an interface."""
    return [address for address in host_addresses() if not address.startswith("127.")] + PUBLIC + INNER


# Cases 39, 41, 42.
@pytest.mark.first_promise
@each_engine
async def test_tcp_udp_icmp_and_ipv6_out_fail_at_once(subject: Subject) -> None:
    """In one sandbox, as one whose network was used is not used again."""
    assert len(others()) > len(PUBLIC + INNER)
    ports = [subject.canaries.tcp_port, 22, 53, 80, 443, 2375, 2376]
    calls = f"attempt(socket.AF_INET, socket.SOCK_STREAM, (a, p)) for a in {others()} for p in {ports}"
    assert await attempts(subject, calls) == UNREACHABLE
    ports = [subject.canaries.udp_port, 53, 123, 443]
    calls = f"attempt(socket.AF_INET, socket.SOCK_DGRAM, (a, p)) for a in {others()} for p in {ports}"
    assert await attempts(subject, calls) == UNREACHABLE
    calls = "attempt(socket.AF_INET, kind, ('1.1.1.1', 0), socket.IPPROTO_ICMP) for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM)"
    assert await attempts(subject, calls) == {"EPERM"}
    addresses = ["2606:4700:4700::1111", "2001:4860:4860::8888", "fe80::1", "fd00::1", "ff02::1", *INNER_6]
    ports = [subject.canaries.tcp_port, 53, 443]
    calls = (
        f"attempt(socket.AF_INET6, kind, (a, p)) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM) "
        f"for a in {addresses} for p in {ports}"
    )
    assert await attempts(subject, calls) <= UNREACHABLE_6 | {"EINVAL"}  # a link-local address without its link
    broadcast = f"""
    import errno, socket
    def send(address):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                made.sendto(b"out", (address, {subject.canaries.udp_port}))
                return "sent"
        except OSError as error:
            return errno.errorcode[error.errno]
    print({{send(address) for address in ("255.255.255.255", "224.0.0.1", "239.255.255.250", "172.17.255.255")}})
    """
    assert await subject.out(broadcast) == "{'ENETUNREACH'}\n"


# Case 39.
async def test_loopback_is_the_sandbox_s_own_and_works(subject: Subject) -> None:
    calls = f"attempt(socket.AF_INET, socket.SOCK_STREAM, (a, {subject.canaries.tcp_port})) for a in ('127.0.0.1', '0.0.0.0')"
    assert await attempts(subject, calls) == {"ECONNREFUSED"}
    code = """
    import socket
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"within")
            print(client.recv(10))
    """
    assert await subject.out(code) == "b'within'\n"


# Case 40.
@each_engine
async def test_names_are_not_resolved_and_no_server_for_them_answers(subject: Subject) -> None:
    code = """
    import socket
    for name in ("example.com", "host.docker.internal", "gateway.docker.internal", "host.containers.internal"):
        try:
            print(socket.getaddrinfo(name, 80))
        except socket.gaierror:
            print("no")
    """
    assert await subject.out(code, timeout=30) == "no\n" * 4
    for server in ("127.0.0.11", "127.0.0.53", "8.8.8.8", "::1"):
        said = await ask_for_a_name(subject, server)
        assert len(said) == 2, server
        assert set(said) <= {"ECONNREFUSED"} | UNREACHABLE_6, server


async def ask_for_a_name(subject: Subject, server: str) -> list[str]:
    """What becomes of a query over UDP and over TCP."""
    family = "socket.AF_INET6" if ":" in server else "socket.AF_INET"
    code = f"""
    import errno, socket
    query = bytes.fromhex("abcd01000001000000000000076578616d706c6503636f6d0000010001")
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket({family}, kind) as made:
            made.settimeout(2)
            try:
                made.connect(({server!r}, 53))
                made.send(query)
                print("answered", made.recv(512))
            except OSError as error:
                print(errno.errorcode.get(error.errno, repr(error)))
    """
    return (await subject.out(code)).split()


# Case 43.
@each_engine
async def test_only_the_loopback_interface_exists_without_a_route_and_none_can_be_made(subject: Subject) -> None:
    assert await subject.out("import socket; print(sorted(name for _, name in socket.if_nameindex()))") == "['lo']\n"
    routes = "import pathlib; print(len(pathlib.Path('/proc/net/route').read_text().splitlines()))"
    assert await subject.out(routes) == "1\n"  # the heading
    code = """
    import errno, fcntl, os, socket, struct

    def answer(request):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as made:
            made.send(request)
            return errno.errorcode[-struct.unpack_from("i", made.recv(4096), 16)[0]]

    new_link, new_address, new_route = 16, 20, 24
    def request(kind, body):
        return struct.pack("=IHHII", 16 + len(body), kind, 0x0605, 1, 0) + body
    print(answer(request(new_link, struct.pack("=BBHiII", 0, 0, 0, 0, 1, 1) + struct.pack("=HH", 8, 3) + b"eth0")))
    print(answer(request(new_address, struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH", 8, 2) + bytes((10, 1, 1, 1)))))
    print(answer(request(new_route, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0))))
    with socket.socket() as made:
        try:
            fcntl.ioctl(made, 0x8914, struct.pack("16sH", b"lo", 0))  # take the interface down
        except OSError as error:
            print(errno.errorcode[error.errno])
    """
    assert await subject.out(code) == "EPERM\n" * 4


# Case 44.
async def test_abstract_sockets_of_the_host_are_out_of_sight(subject: Subject) -> None:
    names = ["\0" + subject.canaries.abstract, "\0/tmp/.X11-unix/X0", "\0/containerd-shim"]
    calls = f"attempt(socket.AF_UNIX, socket.SOCK_STREAM, name) for name in {names!r}"
    assert await attempts(subject, calls) == {"ECONNREFUSED"}
    listed = "import re; print(re.findall('@.*', open('/proc/net/unix').read()))"
    found = await subject.out(listed)
    # A session has one of its own, to which the interpreter connects after each block.
    assert re.fullmatch(r"\[('@codeact-[0-9a-f]{16}'(, )?)*\]\n" if subject.session else r"\[\]\n", found), found


# Case 39.
async def test_control_with_a_network_the_same_code_reaches_the_host(docker_engine: str, canaries: Canaries) -> None:
    """What the cases above refuse goes through where a network is asked for."""
    reach = [address for address in host_addresses() if not address.startswith("127.")]
    calls = f"attempt(socket.AF_INET, socket.SOCK_STREAM, (a, {canaries.tcp_port})) for a in {reach}"
    async with DockerCommandLineCodeExecutor(network="bridge", timeout=30) as executor:
        result = await run(executor, f"{TRY}\n    print(*set({calls}))")
    assert "reached" in result.output.split()
    assert any(socket.AF_INET.name in knock for knock in canaries.heard())
