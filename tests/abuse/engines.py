"""Three Docker engines for tests of `hosts`: each reached over TCP with TLS, and with a network and a disk of its own."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import trustme

from codeact_sandbox import AsyncSandbox, DockerHost, DockerTLS, SandboxError
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.placement import placement

from .engine_proxy import engine_proxy
from .second_engine import SecondEngine, new_engine, write_certificates
from .small_image import small_image

IMAGE = "codeact-test/python:small"
NAMES = ("a", "b", "c")


class TlsEngine(SecondEngine):
    """An engine that listens on loopback, with TLS and client certificates."""

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
    """Three engines. The first one has the image."""

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
    """Start three engines, and end them with all that they have."""
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


def box_on(engines: Engines | list[DockerHost], **options: Any) -> AsyncSandbox:
    """A sandbox that has not been started."""
    hosts = engines.hosts if isinstance(engines, Engines) else engines
    return AsyncSandbox(**{"hosts": hosts, "image": IMAGE, "progress": lambda _: None, **options})


@asynccontextmanager
async def stopping(boxes: list[AsyncSandbox]) -> AsyncIterator[list[AsyncSandbox]]:
    """Stop sandboxes at the end, whether they have started or not."""
    try:
        yield boxes
    finally:
        await asyncio.gather(*(box.stop() for box in boxes))


async def start_all(boxes: list[AsyncSandbox]) -> Counter[str | None]:
    """Start sandboxes one after the other; how many each engine has."""
    for box in boxes:
        await box.start()
    return Counter(box.engine for box in boxes)


def waits_out(hosts: list[DockerHost]) -> Callable[[], bool]:
    """Whether this process takes all of these engines for out."""
    return lambda: all(placement().why_out(host) is not None for host in hosts)


@contextmanager
def unusable(engines: Engines) -> Iterator[dict[str, tuple[DockerHost, str]]]:
    """Hosts that can't be used, by name, each with what is said of it."""
    good, other = engines.certificates / "good", engines.certificates / "other"
    untrusted = DockerTLS(ca=other / "own-ca.pem", cert=good / "cert.pem", key=good / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    body = b"OK"
    reply = b"HTTP/1.1 200 OK\r\nApi-Version: 1.20\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    with engine_proxy() as old:
        old.on("GET", "/_ping", "answer", reply=reply % (len(body), body))
        yield {
            "refused": (DockerHost(url=engines["b"].host.url, tls=other, name="refused"), "No TLS connection to"),
            "untrusted": (
                DockerHost(url=engines["c"].host.url, tls=untrusted, name="untrusted"),
                "No TLS connection to the Docker engine untrusted ",
            ),
            "nobody": (
                DockerHost(url=f"tcp://127.0.0.1:{nobody}", tls=good, name="nobody"),
                "No Docker engine at nobody: nothing listens there. Start it, or correct its url",
            ),
            "old": (
                DockerHost(url=old.address, name="old"),
                "The Docker engine old is too old: it has version 1.20 of Docker's API, and at least 1.30 is needed. "
                "Upgrade Docker there",
            ),
        }


class Doubles:
    """Numbers that are doubled, each in a sandbox of its own, and tried again until each is done."""

    def __init__(self, make: Callable[[], AsyncSandbox], count: int) -> None:
        self.done: Counter[int] = Counter()
        self.engines: Counter[str | None] = Counter()
        self._make = make
        self._waiting = list(range(count))

    async def work(self) -> None:
        """Double numbers until none is left."""
        while self._waiting:
            number = self._waiting.pop(0)
            try:
                async with self._make() as box:
                    result = await box.run(f"import time; time.sleep(0.05); print({number} * 2)", timeout=100)
                    assert result.output == f"{number * 2}\n"
                    self.engines[box.engine] += 1
            except SandboxError:
                self._waiting.append(number)
            else:
                self.done[number] += 1
