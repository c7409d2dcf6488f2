"""The tool that fetches pages: from allowed hosts, at checked addresses, within limits."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import BaseTool

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.executors.tools.fetch import FetchUrlArguments, FetchUrlTool
from tests.cases import case
from tests.sandbox import reused
from tests.sandbox.egress.servers import Hosts, Server, answer, echo_request, hosts_in, read_request
from tests.sandbox.sandboxes import out


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    with hosts_in(tmp_path) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca_file))
        yield made


def entry(server: Server, name: str = "ok.example") -> str:
    return f"{name}:{server.port} in 127.0.0.0/8"


async def fetch(tool: FetchUrlTool, url: str) -> str:
    return await tool.run(FetchUrlArguments(url=url), CancellationToken())


def serving(*answers: bytes) -> Callable[[socket.socket], None]:
    """Return a handler with one response for each connection."""
    left = iter(answers)

    def serve(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(next(left))

    return serve


async def test_a_page_is_fetched(hosts: Hosts) -> None:
    for scheme in ["http", "https"]:
        with case(scheme):
            server = hosts.serve(echo_request, "ok.example", tls=scheme == "https")
            tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
            page = await fetch(tool, f"{scheme}://OK.example:{server.port}/a b?c=%20ü#d".replace(" ", "%20"))
            assert page.splitlines()[:2] == ["GET /a%20b?c=%20%C3%BC HTTP/1.1", f"Host: ok.example:{server.port}"]
            assert hosts.asked == ["ok.example"]
            hosts.asked.clear()


async def test_text_is_decoded_with_the_charset_of_the_response(hosts: Hosts) -> None:
    server = hosts.serve(
        serving(
            answer("für".encode("latin-1"), Content_Type="text/plain; charset=iso-8859-1"),
            answer("für".encode(), Content_Type="text/plain"),
            answer(b"\xff\xfe", Content_Type="text/plain; charset=no-such"),
        ),
        "ok.example",
    )
    tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
    found = [await fetch(tool, f"http://ok.example:{server.port}/") for _ in range(3)]
    assert found == ["für", "für", "\ufffd\ufffd"]


async def test_a_charset_that_is_not_for_pages_is_read_as_utf_8(hosts: Hosts) -> None:
    for charset in ["hex", "undefined", "punycode"]:
        with case(charset):
            page = ("ü" + "9" * 500_000).encode()
            server = hosts.serve(serving(answer(page, Content_Type=f"text/plain; charset={charset}")), "ok.example")
            tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
            assert await fetch(tool, f"http://ok.example:{server.port}/") == page.decode()


async def test_the_body_of_a_redirect_is_not_read(hosts: Hosts) -> None:
    def serve(sock: socket.socket) -> None:
        if b"GET /next " in read_request(sock):
            sock.sendall(answer(b"there"))
            return
        sock.sendall(b"HTTP/1.1 302 Found\r\nLocation: /next\r\n\r\n")
        while True:
            sock.sendall(bytes(65536))

    server = hosts.serve(serve, "ok.example")
    tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
    assert await fetch(tool, f"http://ok.example:{server.port}/") == "there"


async def test_the_certificate_of_a_redirect_at_the_same_address_is_checked(hosts: Hosts) -> None:
    server = hosts.serve(
        lambda sock: read_request(sock) and sock.sendall(answer(b"", "302 Found", Location=redirect)),
        "ok.example",
        tls=True,
    )
    redirect = f"https://other.example:{server.port}/"
    hosts.addresses["other.example"] = ["127.0.0.1"]
    tool = FetchUrlTool([entry(server), entry(server, "other.example")], resolve=hosts.resolve)
    with pytest.raises(ConnectionError, match="certificate is not valid for 'other"):
        await fetch(tool, f"https://ok.example:{server.port}/")
    assert server.connections == 2


async def test_the_address_that_was_checked_is_connected_to(hosts: Hosts) -> None:
    """DNS rebinding: a second lookup would give the address of another server."""
    server = hosts.serve(echo_request, address=("127.0.0.2", 0))
    other = hosts.serve(echo_request, address=("127.0.0.1", server.port))
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])
    tool = FetchUrlTool([f"ok.example:{server.port} in 127.0.0.2/32"], resolve=lambda _: next(answers))
    url = f"http://ok.example:{server.port}/"
    assert (await fetch(tool, url)).startswith("GET / HTTP/1.1")
    for _ in range(2):
        with pytest.raises(PermissionError, match=r"resolves to 127\.0\.0\.1, which is not in 127\.0\.0\.2/32"):
            await fetch(tool, url)
    assert (server.connections, other.connections) == (1, 0)


async def test_proxies_of_the_environment_are_not_used(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    server, proxy = hosts.serve(echo_request, "ok.example"), hosts.serve(echo_request)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
    await fetch(tool, f"http://ok.example:{server.port}/")
    assert (server.connections, proxy.connections) == (1, 0)


async def test_redirects_are_followed_and_each_is_checked(hosts: Hosts) -> None:
    server = hosts.serve(
        serving(
            answer(b"", "302 Found", Location="/next"),
            answer(b"there"),
            answer(b"", "301 Moved", Location="http://evil.example/"),
            *[answer(b"", "307 Again", Location="/again")] * 6,
        ),
        "ok.example",
    )
    hosts.addresses["evil.example"] = ["127.0.0.1"]
    tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
    url = f"http://ok.example:{server.port}/"
    assert await fetch(tool, url) == "there"
    with pytest.raises(PermissionError, match=r"^evil\.example:80 is not in allow_domains; "):
        await fetch(tool, url)
    with pytest.raises(ConnectionError, match="more than 5 redirects"):
        await fetch(tool, url)
    assert set(hosts.asked) == {"ok.example"}


async def test_a_page_that_is_not_fetched_says_why(hosts: Hosts) -> None:
    for url, error, message in [
        ("http://evil.example/", PermissionError, "evil.example:80 is not in allow_domains"),
        ("https://ok.example/", PermissionError, "ok.example:443 is not in allow_domains"),
        ("http://127.0.0.1:{port}/", PermissionError, "127.0.0.1:{port} is not in allow_domains"),
        ("http://[::1]:{port}/", PermissionError, "[::1]:{port} is not in allow_domains"),
        ("http://2130706433:{port}/", PermissionError, "(four numbers from 0 to 255), so it is not in allow_domains"),
        ("http://inside.ok.example:{port}/", PermissionError, "resolves to 10.0.0.1, which is private"),
        ("http://ok.example@evil.example/", ValueError, "has a user in front of the host"),
        ("http://ok.example\\@evil.example/", ValueError, "is not a URL"),
        ("http://evil\0.ok.example/", ValueError, "is not a URL"),
        ("http://ok.example:{port}/\r\nX: y", ValueError, "is not a URL"),
        ("file:///etc/passwd", ValueError, "is not a URL of the web"),
        ("ftp://ok.example/", ValueError, "is not a URL of the web"),
        ("ok.example", ValueError, "is not a URL of the web"),
        ("http://[::1/", ValueError, "is not a URL"),
        ("http://ok.example:x/", ValueError, "is not a URL"),
        ("http://nowhere.ok.example:{port}/", ConnectionError, "its address was not found"),
    ]:
        with case(url, error, message):
            server = hosts.serve(echo_request, "ok.example")
            hosts.addresses["inside.ok.example"] = ["10.0.0.1"]
            tool = FetchUrlTool([entry(server), f"*.ok.example:{server.port}"], resolve=hosts.resolve)
            with pytest.raises(error) as caught:
                await fetch(tool, url.replace("{port}", str(server.port)))
            assert message.replace("{port}", str(server.port)) in str(caught.value)
            assert server.connections == 0


async def test_server_errors_and_large_pages_are_errors(hosts: Hosts) -> None:
    server = hosts.serve(
        serving(
            answer(b"", "404 Not Found"),
            answer(b"x" * 101),
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100,
            b"garbage\r\n\r\n",
        ),
        "ok.example",
    )
    tool = FetchUrlTool([entry(server)], max_bytes=100, resolve=hosts.resolve)
    url = f"http://ok.example:{server.port}/"
    with pytest.raises(ConnectionError, match="the server says 404"):
        await fetch(tool, url)
    with pytest.raises(ValueError, match="more than the 100 bytes"):
        await fetch(tool, url)
    assert await fetch(tool, url) == "x" * 100
    with pytest.raises(ConnectionError, match="can't be fetched: illegal status line"):
        await fetch(tool, url)


async def test_a_server_that_never_responds_times_out(hosts: Hosts) -> None:
    release = threading.Event()
    server = hosts.serve(lambda _: bool(release.wait(30)) and None, "ok.example")
    try:
        tool = FetchUrlTool([entry(server)], timeout=0.2, resolve=hosts.resolve)
        with pytest.raises(TimeoutError, match=r"was not fetched within 0\.2 s"):
            await fetch(tool, f"http://ok.example:{server.port}/")
    finally:
        release.set()


def test_a_component_config_keeps_the_list_and_the_limits() -> None:
    tool = FetchUrlTool(["ok.example", "*.example.org:443"], max_bytes=10, timeout=1.5)
    dumped = json.loads(tool.dump_component().model_dump_json())
    loaded: BaseTool[Any, Any] = BaseTool.load_component(dumped)
    assert type(loaded) is FetchUrlTool
    assert json.loads(loaded.dump_component().model_dump_json()) == dumped
    assert dumped["config"] == {"allow_domains": ["ok.example", "*.example.org:443"], "max_bytes": 10, "timeout": 1.5}
    assert loaded.description == (
        "Fetch a page and return its text. Only these hosts can be reached: ok.example, *.example.org:443."
    )


async def test_code_in_the_sandbox_calls_it(hosts: Hosts, sandbox_image: str) -> None:
    server = hosts.serve(echo_request, "ok.example", tls=True)
    tool = FetchUrlTool([entry(server)], resolve=hosts.resolve)
    async with reused.executor(DockerCommandLineCodeExecutor, mode="session", timeout=20, tools=[tool]) as executor:
        code = f"""
        print(fetch_url("https://ok.example:{server.port}/a").splitlines()[0])
        try:
            fetch_url(url="http://127.0.0.1:{server.port}/")
        except Exception as error:
            print(error)
        """
        assert await out(executor, code) == (
            f"GET /a HTTP/1.1\n127.0.0.1:{server.port} is not in allow_domains; to allow it, the user of this sandbox adds "
            f"'127.0.0.1:{server.port}' to allow_domains\n"
        )
