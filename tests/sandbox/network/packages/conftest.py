"""A package index of a folder, which the host's pip is configured for."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.sandbox.images import make_wheel
from tests.sandbox.network.servers import Hosts, hosts_in

PIP_VARIABLES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT"),
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


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the packages of a folder as an index; gives its URL."""
    for file in sorted(each for each in folder.iterdir() if each.is_file()):
        page = folder / "simple" / file.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a") as pages:
            pages.write(link(file, f"../../{file.name}"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, *_: object) -> None:
        """Do nothing."""


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
    with pytest.MonkeyPatch.context() as monkeypatch, served(index.parent) as url:
        configure(monkeypatch, PIP_INDEX_URL=url)
        yield monkeypatch
