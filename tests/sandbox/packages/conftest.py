"""A package index in a folder, which the host's pip is configured for."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.egress.servers import Hosts, hosts_in
from tests.sandbox.images import make_wheel

PIP_VARIABLES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT"),
    *("PIP_CLIENT_CERT", "PIP_PROXY", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy", "NETRC"),
)


def configure(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Configure the host's pip by nothing but these variables."""
    for name in PIP_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def link(file: Path, href: str | None = None) -> str:
    """A link to a file, with its hash, as an index has it."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f'<a href="{href or f"../../files/{file.name}"}#sha256={digest}">{file.name}</a>'


def make_index(folder: Path) -> Path:
    """An index in the simple layout: `tinywheel`, which brings a command and needs `otherwheel`, of which there are two."""
    files = folder / "files"
    made = [
        make_wheel(files, "def main():\n    print('hello')\n", needs="otherwheel>=1", scripts="tiny = tinywheel:main"),
        make_wheel(files, "value = 1\n", name="otherwheel", needs=""),
        make_wheel(files, "value = 2\n", name="otherwheel", needs="", version="2.0"),
    ]
    for name in ("tinywheel", "otherwheel"):
        page = folder / "simple" / name / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text("\n".join(link(file) for file in made if file.name.startswith(name)))
    return folder / "simple"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Servers on loopback, with certificates of one authority."""
    with hosts_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index."""
    return make_index(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def configured(index: Path) -> Iterator[pytest.MonkeyPatch]:
    """The host's pip is configured for that index alone."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        configure(monkeypatch, PIP_INDEX_URL=index.as_uri())
        yield monkeypatch
