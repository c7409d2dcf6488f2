"""Secrets that code uses without seeing them: with the clients that people use, and what is refused before."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from codeact_sandbox import AsyncSandbox, Secret
from codeact_sandbox.network.secrets import Mask, MaskedStream
from codeact_sandbox.types.options import BubblewrapOptions, DockerOptions
from codeact_sandbox.types.secrets import look_up, parse_secrets
from tests.cases import case
from tests.sandbox.network.conftest import Allow
from tests.sandbox.network.servers import Hosts, answer, read_request
from tests.sandbox.sandboxes import out, run

VALUE = "k3y/with+all=of&it"


@pytest.fixture(autouse=True)
def _environment(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value, and the authority that the real servers have."""
    monkeypatch.setenv("HOST_KEY", VALUE)
    monkeypatch.setenv("SSL_CERT_FILE", str(hosts.ca_file))


def secret(*ports: int) -> dict[str, Secret]:
    """The secret for servers on loopback."""
    return {"API_KEY": Secret(env="HOST_KEY", hosts=[f"ok.example:{port} in 127.0.0.0/8" for port in ports])}


async def test_urllib_and_httpx_need_no_change(allow: Allow, hosts: Hosts) -> None:
    seen: list[bytes] = []

    def serve(sock: object) -> None:
        seen.append(echo(sock))

    server = hosts.serve(serve, "ok.example", tls=True)
    executor = await allow(secrets=secret(server.port))
    code = f"""
    import os, urllib.request
    url, headers = "https://ok.example:{server.port}/a?b", {{"Authorization": "Bearer " + os.environ["API_KEY"]}}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        print(answer.status, [line for line in answer.read().decode().splitlines() if "Bearer" in line])
    try:
        import httpx
        print(httpx.post(url, headers=headers, content=b"x" * 100_000).text.endswith("x" * 100_000))
    except ImportError:
        print(True)
    """
    masked = f"Authorization: Bearer {'*' * len(VALUE)}"
    assert await out(executor, code) == f"200 [{masked!r}]\nTrue\n"
    assert f"\r\nAuthorization: Bearer {VALUE}\r\n".encode() in seen[0]
    assert seen[0].startswith(b"GET /a?b HTTP/1.1\r\nHost: ok.example:")


def echo(sock: object) -> bytes:
    """Respond with the request, and return it."""
    request = read_request(sock)  # type: ignore[arg-type]
    sock.sendall(answer(request))  # type: ignore[attr-defined]
    return request


async def test_curl_and_git(allow: Allow, hosts: Hosts) -> None:
    seen: list[bytes] = []
    server = hosts.serve(lambda sock: seen.append(echo(sock)), "ok.example", tls=True)
    executor = await allow(secrets=secret(server.port), timeout=30)
    url = f"https://ok.example:{server.port}"
    programs = {
        "curl": f'curl -sS --compressed -u "me:$API_KEY" {url}/curl',
        "git": f'git -c http.extraHeader="X-Key: $API_KEY" ls-remote {url}/git 2>&1',
    }
    basic = b"Basic " + base64.b64encode(f"me:{VALUE}".encode())
    for name, command in programs.items():
        if (await run(executor, f"command -v {name}", "sh")).exit_code != 0:
            continue
        with case(name):
            seen.clear()
            result = await run(executor, command, "sh")
            assert VALUE not in result.output
            assert (basic if name == "curl" else b": " + VALUE.encode() + b"\r\n") in b"".join(seen), result.output


async def test_a_server_with_a_wrong_certificate_gets_nothing(
    allow: Allow, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    seen: list[bytes] = []
    server = hosts.serve(lambda sock: seen.append(echo(sock)), "ok.example", tls=True)
    executor = await allow(secrets=secret(server.port))
    code = f"""
    import urllib.request
    try:
        urllib.request.urlopen("https://ok.example:{server.port}/")
    except OSError as error:
        print(error.reason)
    """
    assert "certificate verify failed" in await out(executor, code)
    assert seen == []


def test_what_can_be_given_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["api.example.com"]
    cases = [
        (lambda: Secret(env="A-B", hosts=hosts), "is not the name of a variable"),
        (lambda: Secret(env="sk-live-0123456789", hosts=hosts), "is not the name of a variable"),
        (
            lambda: Secret(value="sk-live-0123456789", hosts=hosts),
            "a secret has no value=: put the value into a variable",
        ),  # type: ignore[call-arg]
        (lambda: Secret(env="KEY", hosts=[]), "is a list of the hosts"),
        (lambda: Secret(env="KEY", hosts="api.example.com"), "is a list of the hosts"),
        (
            lambda: Secret(env="KEY", hosts=["https://api.example.com"]),
            "hosts= of a secret has 'https://api.example.com'",
        ),
        (lambda: Secret(env="KEY", hosts=["*"]), "which is not a host|which names no host"),
        (lambda: DockerOptions(secrets={"API_KEY": "sk-live-0123456789"}), "give the name of a variable, no value"),
        (lambda: DockerOptions(secrets=["API_KEY"]), "secrets= is a mapping"),
        (lambda: DockerOptions(secrets={"A B": Secret(env="KEY", hosts=hosts)}), "Entry 1 of secrets= is not the name"),
        (lambda: DockerOptions(secrets={"LD_PRELOAD": Secret(env="KEY", hosts=hosts)}), "LD_PRELOAD can't be set"),
        (
            lambda: DockerOptions(secrets={"KEY": Secret(env="KEY", hosts=hosts)}, environment=["KEY"]),
            "environment= and secrets= both set KEY",
        ),
        (
            lambda: DockerOptions(secrets={"KEY": Secret(env="KEY", hosts=hosts)}, network="bridge"),
            "secrets= is for a sandbox without a network",
        ),
    ]
    for make, message in cases:
        with case(message), pytest.raises((ValueError, TypeError), match=message) as raised:
            make()
        assert "sk-live" not in str(raised.value)
    kept = {"KEY": Secret(env="HOST_KEY", hosts=hosts)}
    for options in (DockerOptions, BubblewrapOptions):
        dumped = json.loads(options(secrets=kept).model_dump_json())["secrets"]
        assert dumped == {"KEY": {"env": "HOST_KEY", "hosts": hosts}}
        assert options(secrets=dumped).secrets == kept


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "needs the host's variable HOST_KEY, which is not set"),
        ("", "needs the host's variable HOST_KEY, which is empty"),
        ("secret-value\n", "HOST_KEY can't be sent in a header: it has a line break"),
        ("secret-value\r\nX: y", "HOST_KEY can't be sent in a header"),
        (" secret-value", "HOST_KEY can't be sent in a header"),
        ("s\u00e9cret-value", "HOST_KEY can't be sent in a header"),
        ("secret", "HOST_KEY has 6 characters: a secret has 8 to 8,192"),
        ("s" * 8193, "HOST_KEY has 8,193 characters"),
    ],
)
async def test_the_value_is_checked_at_the_start(monkeypatch: pytest.MonkeyPatch, value: Any, message: Any) -> None:
    if value is None:
        monkeypatch.delenv("HOST_KEY")
    else:
        monkeypatch.setenv("HOST_KEY", value)
    box = AsyncSandbox("bubblewrap", secrets={"KEY": Secret(env="HOST_KEY", hosts=["api.example.com"])})
    with pytest.raises(ValueError, match=message) as raised:
        await box.start()
    assert not value or value == "secret" or value.strip() not in str(raised.value)
    await box.stop()


def test_names_of_variables_reach_a_config_and_values_do_not() -> None:
    secrets = parse_secrets({"KEY": {"env": "HOST_KEY", "hosts": ["api.example.com"]}})
    assert VALUE not in repr((secrets, look_up(secrets), DockerOptions(secrets=secrets)))


def reflected(value: str) -> list[bytes]:
    """A value as servers send it back."""
    raw = value.encode()
    mixed = b"prefix:" + raw + b":suffix"
    encoded = [base64.b64encode(b"x" * size + raw + b"y" * more) for size in range(4) for more in range(4)]
    return [
        raw, raw.lower(), raw.upper(), mixed,
        raw.hex().encode(), raw.hex().upper().encode(), quote(value, safe="").encode(), quote(value).encode(),
        json.dumps(value).encode(), "".join(f"%{byte:02x}" for byte in raw).encode(),
        *encoded, *(base64.urlsafe_b64encode(base64.b64decode(each)) for each in encoded),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [VALUE, "sk-ABCDEFGHIJ0123456789_-", "a" * 40, 'quo"te\\back/slash%41'])
def test_a_value_is_masked_however_it_is_cut(value: str) -> None:
    mask = Mask([value.encode()])
    for data in reflected(value):
        with case(data):
            whole = mask.apply(data)
            assert len(whole) == len(data)
            assert "*" * 8 in whole.decode()
            for cut in range(len(data)):
                stream = MaskedStream(mask)
                assert stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.feed(b"", last=True) == whole
            stream = MaskedStream(mask)
            pieces = [stream.feed(data[at : at + 1]) for at in range(len(data))]
            assert b"".join(pieces) + stream.feed(b"", last=True) == whole
