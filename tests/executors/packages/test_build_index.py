"""Images with `packages` are built from the index that the host's pip is configured for, and no password is in them."""

import ipaddress
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient

from autogen_codeact.sandbox.backends.docker.build_index import CERTIFICATES, BuildIndex
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.backends.docker.image import DEFAULT_IMAGE, build_advice, resolve_image
from autogen_codeact.sandbox.errors import SandboxStartError
from tests.executors.egress.servers import Hosts, Server, hosts_in
from tests.executors.images import build_from, make_wheel, silent

from .conftest import configure, link
from .index_server import Index

SECRET = "s3cret-of-the-build"


@pytest.fixture
def client(docker_engine: Any, sandbox_image: Any) -> Iterator[APIClient]:
    """The engine."""
    with closing(connect()) as made:
        yield made


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Servers with certificates of one authority."""
    with hosts_in(tmp_path) as made:
        yield made


@pytest.fixture
def serve(client: APIClient, hosts: Hosts) -> Iterator[Callable[..., str]]:
    """Serve an index where a build reaches it; gives its URL."""
    (pool,) = client.inspect_network("bridge")["IPAM"]["Config"]
    address = pool.get("Gateway") or str(next(ipaddress.ip_network(pool["Subnet"]).hosts()))
    servers: list[Server] = []

    def start(index: Index, *, tls: bool = False) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        hosts.ca.issue_cert(address).configure_cert(context)
        servers.append(Server(index.handle, context if tls else None, (address, 0)))
        return f"http{'s' if tls else ''}://{address}:{servers[0].port}/simple/"

    yield start
    for server in servers:
        server.close()


def index_with(wheel: Path, password: str | None = None) -> Index:
    """An index of one package."""
    page = link(wheel, f"/files/{wheel.name}")
    return Index({"/simple/tinywheel/": page, f"/files/{wheel.name}": wheel.read_bytes()}, password)


def everything(client: APIClient, image: str) -> str:
    """What the engine tells about an image, its layers and their history."""
    return json.dumps([client.inspect_image(image), client.history(image)])


def test_a_build_trusts_the_configured_authority(
    client: APIClient, hosts: Hosts, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = index_with(make_wheel(tmp_path / "made", "value = 1\n", needs=""))
    configure(monkeypatch, PIP_INDEX_URL=serve(index, tls=True), PIP_CERT=str(hosts.ca_file))
    # pip 25 can't check the certificate of an address otherwise.
    base = build_from(
        client, f"FROM {DEFAULT_IMAGE}\nENV PIP_USE_DEPRECATED=legacy-certs\n", "codeact-test-legacy-certs"
    )
    made = resolve_image(client, base, ["tinywheel"], progress=silent)
    try:
        assert "/files/tinywheel-1.0-py3-none-any.whl" in [each.target for each in index.requests]
        container = client.create_container(made, ["ls", CERTIFICATES])
        try:
            client.start(container)
            assert client.wait(container, timeout=30)["StatusCode"] == 2  # it is removed again
        finally:
            client.remove_container(container, force=True)
    finally:
        client.remove_image(made, force=True)
        client.remove_image(base, force=True)


def test_no_password_is_in_an_image(
    client: APIClient, hosts: Hosts, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = index_with(make_wheel(tmp_path / "made", "value = 2\n", needs=""))
    url = serve(index).replace("://", f"://someone:{SECRET}@")
    configure(monkeypatch, PIP_INDEX_URL=url, PIP_TRUSTED_HOST=url.split("@")[1].split(":")[0])
    made = resolve_image(client, DEFAULT_IMAGE, ["tinywheel"], progress=silent)
    try:
        assert SECRET not in everything(client, made)
        assert {each.headers.get("authorization") for each in index.requests} == {None}
    finally:
        client.remove_image(made, force=True)


def test_an_index_that_needs_a_password_says_what_to_do(
    client: APIClient, hosts: Hosts, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = index_with(make_wheel(tmp_path / "made", "value = 3\n", needs=""), f"someone:{SECRET}")
    url = serve(index)
    with_password = url.replace("://", f"://someone:{SECRET}@")
    configure(monkeypatch, PIP_INDEX_URL=with_password, PIP_TRUSTED_HOST=url.split("/")[2].split(":")[0])
    with pytest.raises(SandboxStartError) as caught:
        resolve_image(client, DEFAULT_IMAGE, ["tinywheel"], progress=silent)
    assert f"A build is not given the password of {url}, because everybody who has the image could read it" in str(
        caught.value
    )
    assert "Use allow_pip=True" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_what_a_build_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    configure(
        monkeypatch,
        PIP_INDEX_URL=f"https://someone:{SECRET}@a.example/simple",
        PIP_EXTRA_INDEX_URL=f"https://{SECRET}@b.example/simple file:///srv/simple",
        PIP_FIND_LINKS="/srv/wheels https://c.example/links.html",
        PIP_TRUSTED_HOST="d.example",
        PIP_CERT=str(tmp_path / "ca.pem"),
        PIP_CLIENT_CERT="/me.pem",
        PIP_PROXY="http://proxy.example:3128",
    )
    found = BuildIndex.of_host()
    assert found == BuildIndex(
        {
            "PIP_INDEX_URL": "https://a.example/simple",
            "PIP_EXTRA_INDEX_URL": "https://b.example/simple",
            "PIP_FIND_LINKS": "https://c.example/links.html",
            "PIP_TRUSTED_HOST": "d.example",
            "PIP_CERT": CERTIFICATES,
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://proxy.example:3128"),
        },
        tmp_path / "ca.pem",
        (
            "the password of https://a.example/simple",
            "the password of https://b.example/simple",
            "the folder file:///srv/simple",
            "the folder /srv/wheels",
            "the client certificate",
        ),
    )
    assert "the folder file:///srv/simple, the folder /srv/wheels, the client certificate, because" in build_advice(
        found, "ERROR: No matching distribution found for x"
    )


def test_an_index_that_pip_has_built_in_is_left_to_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch)
    assert BuildIndex.of_host() == BuildIndex({})
    configure(monkeypatch, PIP_NO_INDEX="1")
    assert BuildIndex.of_host() == BuildIndex({"PIP_NO_INDEX": "1"})
