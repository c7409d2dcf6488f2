"""Images with `packages` are built with what the host's pip is configured for, and nothing of that configuration is in them."""

import ipaddress
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image import DEFAULT_IMAGE, resolve_image
from codeact_sandbox.backends.docker.leftovers import OWNER, owner_labels
from tests.sandbox.images import build_from, make_wheel, run, silent
from tests.sandbox.network.packages.conftest import configure, make_index, served
from tests.sandbox.network.packages.index_server import basic, index_with

pytestmark = pytest.mark.more

SECRET = "s3cret-of-the-build"


@pytest.fixture
def client(docker_engine: Any, sandbox_image: Any) -> Iterator[APIClient]:
    """The engine."""
    with closing(connect()) as made:
        yield made


@pytest.fixture
def built(client: APIClient) -> Iterator[Callable[..., str]]:
    """Make images, which are removed after the test."""
    made: list[str] = []

    def build(base: str, *packages: str) -> str:
        made.append(resolve_image(client, base, packages, progress=silent))
        return made[-1]

    yield build
    for image in made:
        client.remove_image(image, force=True)


def tiny(folder: Path) -> Path:
    """A wheel that no other test has."""
    return make_wheel(folder / "made", f"value = {uuid.uuid4().hex!r}\n", needs="")


def everything(client: APIClient, image: str) -> str:
    """What the engine tells about an image, its layers and their history."""
    return json.dumps([client.inspect_image(image), client.history(image)])


def own_containers(client: APIClient) -> list[str]:
    """The sandboxes of this process."""
    return [
        str(each["Id"]) for each in client.containers(all=True, filters={"label": f"{OWNER}={owner_labels()[OWNER]}"})
    ]


def test_packages_of_an_index_of_the_host_are_in_the_image(client, built, monkeypatch, tmp_path):
    make_index(tmp_path)
    before = own_containers(client)
    with served(tmp_path) as url:
        configure(monkeypatch, PIP_INDEX_URL=url)
        made = built(DEFAULT_IMAGE, "tinywheel", "otherwheel<2")
    assert run(client, made, "tiny") == (0, "hello\n")
    assert run(client, made, "python3", "-c", "import otherwheel, numpy; print(otherwheel.value)") == (0, "1\n")
    assert str(tmp_path) not in everything(client, made)
    assert own_containers(client) == before


def test_password_and_certificate_of_the_index_stay_on_the_host(client, built, hosts, monkeypatch, tmp_path):
    index = index_with(tiny(tmp_path), f"someone:{SECRET}")
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login someone password {SECRET}\n")
    url = index.listen(hosts, tls=True)
    configure(monkeypatch, PIP_INDEX_URL=url, PIP_CERT=str(hosts.ca_file), NETRC=str(tmp_path / "netrc"))
    # Variables of an image can't be replaced by build arguments.
    name = f"codeact-test-{uuid.uuid4().hex[:12]}"
    base = build_from(client, f"FROM {DEFAULT_IMAGE}\nENV PIP_INDEX_URL=https://127.0.0.1:1/\nUSER 1234\n", name)
    try:
        made = built(base, "tinywheel")
        assert run(client, made, "python3", "-c", "import tinywheel; print(len(tinywheel.value))") == (0, "32\n")
        assert {each.headers.get("authorization") for each in index.requests} == {basic(f"someone:{SECRET}")}
        told = everything(client, made)
        assert [word for word in (SECRET, "someone", str(index.port), str(tmp_path)) if word in told] == []
        assert client.inspect_image(made)["Config"]["User"] == "1234"
    finally:
        client.remove_image(base, force=True)


def test_a_requirement_with_a_url_has_the_network_of_the_engine(client, built, hosts, monkeypatch, tmp_path):
    (pool,) = client.inspect_network("bridge")["IPAM"]["Config"]
    address = pool.get("Gateway") or str(next(ipaddress.ip_network(pool["Subnet"]).hosts()))
    wheel = tiny(tmp_path)
    server = hosts.serve(index_with(wheel).handle, address=(address, 0))
    configure(monkeypatch, PIP_NO_INDEX="1")
    made = built(DEFAULT_IMAGE, f"tinywheel @ http://{address}:{server.port}/files/{wheel.name}")
    assert run(client, made, "python3", "-c", "import tinywheel; print(len(tinywheel.value))") == (0, "32\n")
