"""Common clients reach allowed hosts and show why others are refused: urllib, requests, curl, pip."""

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from codeact_sandbox.types.result import NetworkConnection
from tests.sandbox.contract.conftest import Backend
from tests.sandbox.egress.conftest import Allow
from tests.sandbox.egress.servers import Handler, Hosts, Server, answer, echo_request, read_request
from tests.sandbox.images import make_wheel
from tests.sandbox.sandboxes import out, run

NOT_LISTED = "{0} is not in allow_domains; to allow it, the user of this sandbox adds '{0}' to allow_domains"
REFUSED = NOT_LISTED.format("evil.example:443")


def entry(server: Server, name: str = "ok.example") -> str:
    """What allows a server on loopback."""
    return f"{name}:{server.port} in 127.0.0.0/8"


async def test_urllib_over_tls(allow: Allow, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example", tls=True)
    executor = await allow(entry(server))
    code = f"""
    import ssl, urllib.request
    context = ssl.create_default_context(cafile="ca.pem")
    with urllib.request.urlopen("https://ok.example:{server.port}/a?b", context=context) as answer:
        print(answer.status, *answer.read().decode().splitlines()[0:3:2])
    try:
        urllib.request.urlopen("https://evil.example/")
    except OSError as error:
        print(error.reason)
    """
    result = await run(executor, code)
    assert result.output == (
        f"200 GET /a?b HTTP/1.1 Host: ok.example:{server.port}\nTunnel connection failed: 403 {REFUSED}\n"
    )
    assert result.notes == (f"A connection was refused: {REFUSED}.",)
    good, bad = result.connections
    assert (good.host, good.port, good.allowed, good.reason) == ("ok.example", server.port, True, None)
    assert good.sent > 100
    assert good.received > 1000
    assert bad == NetworkConnection("evil.example", 443, False, bad.sent, bad.received, REFUSED)


async def test_urllib_over_plain_http(allow: Allow, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example")
    executor = await allow(entry(server))
    code = f"""
    import urllib.error, urllib.request
    print(urllib.request.urlopen("http://ok.example:{server.port}/a?b").read().decode().splitlines()[:2])
    request = urllib.request.Request("http://ok.example:{server.port}/", b"x" * 3)
    print(urllib.request.urlopen(request).read().decode().endswith("xxx"))
    try:
        urllib.request.urlopen("http://evil.example/")
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode(), end="")
    """
    assert await out(executor, code) == (
        f"['GET /a?b HTTP/1.1', 'Host: ok.example:{server.port}']\nTrue\n403 {NOT_LISTED.format('evil.example:80')}\n"
    )


def packed(folder: Path, *names: str) -> Path:
    """Packages of this Python without what is compiled, in a file that can be imported from."""
    archive = folder / "packages.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in names:
            spec = find_spec(name)
            root = Path(spec.origin).parent
            for path in root.rglob("*"):
                if path.suffix in (".py", ".pem"):
                    made.write(path, Path(name, path.relative_to(root)))
    return archive


@pytest.mark.parametrize("backend", ["docker-session"], indirect=True)
async def test_requests(allow: Allow, hosts: Hosts) -> None:
    """It is not in the image; with its pure packages sent along it keeps connections, and streams."""
    packed(hosts.ca_file.parent, "requests", "urllib3", "idna", "certifi", "charset_normalizer")

    def serve(sock: object) -> None:
        while True:
            read_request(sock)  # type: ignore[arg-type]
            sock.sendall(answer(b"x" * 1_000_000))  # type: ignore[attr-defined]

    secure = hosts.serve(serve, "ok.example", tls=True)
    plain = hosts.serve(echo_request, "plain.example")
    executor = await allow(entry(secure), entry(plain, "plain.example"), timeout=30)
    code = f"""
    import sys
    sys.path.insert(0, "packages.zip")
    import requests
    with requests.Session() as session:
        session.verify = "ca.pem"
        for _ in range(3):
            print(len(session.get("https://ok.example:{secure.port}/").content))
        print(session.post("http://plain.example:{plain.port}/", data={{"a": "b"}}).text.splitlines()[-1])
        try:
            session.get("https://evil.example/")
        except requests.exceptions.ProxyError as error:
            print({REFUSED!r} in str(error))
    """
    assert await out(executor, code) == "1000000\n" * 3 + "a=b\nTrue\n"
    assert secure.connections == 1


async def test_curl(allow: Allow, hosts: Hosts) -> None:
    server = hosts.serve(echo_request, "ok.example", tls=True)
    plain = hosts.serve(echo_request, "plain.example")
    executor = await allow(entry(server), entry(plain, "plain.example"))
    if (await run(executor, "command -v curl", "sh")).exit_code != 0:
        pytest.skip("there is no curl in this sandbox")
    code = f"""
    curl -sS --cacert ca.pem https://ok.example:{server.port}/a | head -1
    curl -sS http://plain.example:{plain.port}/b | head -1
    curl -sS http://evil.example/
    curl -sS https://evil.example/ 2>&1
    """
    result = await run(executor, code, "sh")
    assert result.output.splitlines() == [
        "GET /a HTTP/1.1\r".rstrip(),
        "GET /b HTTP/1.1",
        NOT_LISTED.format("evil.example:80"),
        "curl: (56) CONNECT tunnel failed, response 403",
    ]
    assert f"A connection was refused: {REFUSED}." in result.notes


def index(folder: Path) -> Handler:
    """A package index with one wheel."""
    wheel = make_wheel(folder, "answer = 42", needs="tinywheel")

    def serve(sock: object) -> None:
        path = read_request(sock).split()[1]  # type: ignore[arg-type]
        if path == b"/simple/tinywheel/":
            page = f'<!DOCTYPE html><html><body><a href="/files/{wheel.name}">{wheel.name}</a></body></html>'
            sock.sendall(answer(page.encode(), Content_Type="text/html", Connection="close"))  # type: ignore[attr-defined]
        elif path == f"/files/{wheel.name}".encode():
            sock.sendall(answer(wheel.read_bytes(), Connection="close"))  # type: ignore[attr-defined]
        else:
            sock.sendall(answer(b"", "404 Not Found", Connection="close"))  # type: ignore[attr-defined]

    return serve


@pytest.mark.parametrize("backend", ["bubblewrap-process"], indirect=True)
async def test_pip(allow: Allow, hosts: Hosts, tmp_path: Path, backend: Backend) -> None:
    server = hosts.serve(index(tmp_path / "wheels"), "index.example", tls=True)
    executor = await allow(entry(server, "index.example"), timeout=50)
    code = f"""
    python3 -m pip install --quiet --no-deps --cert ca.pem --target here \
        --index-url https://index.example:{server.port}/simple tinywheel || exit 1
    PYTHONPATH=here python3 -c 'import tinywheel; print(tinywheel.answer)'
    """
    result = await run(executor, code, "sh")
    if "No module named pip" in result.output:
        pytest.skip("there is no pip in this sandbox")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "42"), result
    assert {each.host for each in result.connections} == {"index.example"}
    elsewhere = """
    python3 -m pip install --no-deps --disable-pip-version-check --retries 0 --cert ca.pem --target there \
        --index-url https://evil.example/simple tinywheel
    """
    result = await run(executor, elsewhere, "sh")
    # pip itself says no more than that it found nothing.
    assert (result.exit_code, result.notes) == (1, (f"A connection was refused: {REFUSED}.",))
