"""Three Docker engines for tests of `hosts`: each reached over TCP with TLS, and with a network and a disk of its own."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import trustme

from codeact_sandbox import DockerHost
from codeact_sandbox.backends.docker.engine import connect

from .second_engine import SecondEngine, new_engine, write_certificates
from .small_image import small_image

IMAGE = "codeact-test/python:small"
NAMES = ("a", "b", "c")


class TlsEngine(SecondEngine):
    """An engine that listens on loopback, with TLS and client certificates.

    Args:
        engine: Whose folder it takes over.
        name: Its name.
        server: The folder of its own certificate.
        client: The folder of a client's.
    """

    def __init__(self, engine: SecondEngine, name: str, server: Path, client: Path) -> None:
        super().__init__(engine.folder)
        self.name = name
        self._server = server
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port: int = listener.getsockname()[1]
        self.host = DockerHost(url=f"tcp://127.0.0.1:{self._port}", tls=client, name=name)

    def begin(self) -> None:
        """Start it, if it does not run, and wait until it answers."""
        if self.running:
            self.resume()
            return
        # This process must not keep the socket: connections to an engine that has been killed are refused.
        with socket.create_server(("127.0.0.1", self._port)) as listener:
            self.start(tls=(listener, self._server))

    def add_image(self, files: bytes) -> None:
        """Give it the small image."""
        self.import_image(files, IMAGE)

    def remove_image(self) -> None:
        """Take the image away again."""
        with closing(connect(self.address)) as client:
            if client.images(IMAGE):
                client.remove_image(IMAGE, force=True)


class Engines:
    """Three engines. The first one has the image.

    Args:
        engines: The engines.
        certificates: Folder with certificates: `good`, and `other` of another authority.
    """

    def __init__(self, engines: list[TlsEngine], certificates: Path) -> None:
        self.all = engines
        self.certificates = certificates

    @property
    def hosts(self) -> list[DockerHost]:
        """Their addresses with the files of TLS."""
        return [engine.host for engine in self.all]

    def __getitem__(self, name: str) -> TlsEngine:
        return next(engine for engine in self.all if engine.name == name)

    def begin(self) -> None:
        """Start those that do not run."""
        _together(self.all, TlsEngine.begin)

    def containers(self) -> dict[str, set[str]]:
        """The containers of each."""
        return {engine.name: engine.containers() for engine in self.all}


def _together(engines: list[TlsEngine], work: Any) -> None:
    with ThreadPoolExecutor(len(engines)) as threads:
        list(threads.map(work, engines))


@contextmanager
def engines_in(folder: Path) -> Iterator[Engines]:
    """Start three engines, and end them with all that they have.

    Args:
        folder: Where the certificates are put.
    """
    authority, other = trustme.CA(), trustme.CA()
    server = write_certificates(folder / "server", authority, authority.issue_cert("127.0.0.1"))
    client = write_certificates(folder / "good", authority, authority.issue_cert("client"))
    write_certificates(folder / "other", authority, other.issue_cert("client"))
    other.cert_pem.write_to_path(folder / "other" / "own-ca.pem")
    engines: list[TlsEngine] = []
    try:
        engines.extend(TlsEngine(new_engine(), name, server, client) for name in NAMES)
        files: list[bytes] = []
        packing = threading.Thread(target=lambda: files.append(small_image()))
        packing.start()
        made = Engines(engines, folder)
        try:
            made.begin()
        finally:
            packing.join()
        engines[0].add_image(files[0])
        yield made
    finally:
        _together(engines, TlsEngine.clear)
