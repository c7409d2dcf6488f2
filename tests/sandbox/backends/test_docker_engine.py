"""Every way in which no engine answers, for real where this machine can bring it about, and what is then said."""

import hashlib
import json
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.errors import SandboxUnavailable


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because the path of a socket is limited to some hundred characters."""
    made = Path(tempfile.mkdtemp(prefix="dk"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


@contextmanager
def listening(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A unix socket whose connections go to `serve`, one thread each, all ended on leaving."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the other side has gone, as it should
                serve(self.request)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = False

    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def engine_of_version(path: Path, version: str) -> Iterator[str]:
    """An HTTP server that answers `/_ping` as an engine of that API version would."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"OK"
            self.send_response(200 if self.path == "/_ping" else 404)
            self.send_header("Api-Version", version)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with listening(path, lambda connection: Answer(connection, ("", 0), None)) as address:
        yield address


def context_file(folder: Path, name: str, text: str) -> None:
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))
    place = folder / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    place.mkdir(parents=True)
    (place / "meta.json").write_text(text)


def context_of(host: str, name: str = "elsewhere") -> str:
    return json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}})


def test_the_argument_overrides_docker_host_which_overrides_the_context(folder, monkeypatch):
    with (
        engine_of_version(folder / "a", "1.31") as argument,
        engine_of_version(folder / "b", "1.32") as environment,
        engine_of_version(folder / "c", "1.33") as context,
    ):
        context_file(folder, "elsewhere", context_of(context))
        with connect() as client:
            assert client.api_version == "1.33"
        monkeypatch.setenv("DOCKER_HOST", environment)
        with connect() as client:
            assert client.api_version == "1.32"
        with connect(argument) as client:
            assert client.api_version == "1.31"


def test_a_context_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(SandboxUnavailable, match=r"context nowhere does not exist.*docker context ls"):
        connect()
