"""Package indexes over HTTP: real servers on loopback, with TLS and a password where a test wants them."""

import base64
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.sandbox.network.packages.conftest import link
from tests.sandbox.network.servers import Hosts, Server, answer, read_request

Page = bytes | str | Callable[[socket.socket], None]


@dataclass
class Request:
    """What a client has sent."""

    method: str
    target: str
    headers: Mapping[str, str]


@dataclass
class Index:
    """The pages of a server by path, and the requests that it got. A function as a page writes to the connection itself."""

    pages: dict[str, Page] = field(default_factory=dict)
    password: str | None = None
    types: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    server: Server | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server.port

    def listen(self, hosts: Hosts, name: str = "127.0.0.1", *, tls: bool = False) -> str:
        """Start it; gives the URL of its folder `simple`."""
        self.server = hosts.serve(self.handle, name, tls=tls)
        return f"{'https' if tls else 'http'}://{name}:{self.port}/simple/"

    def handle(self, sock: socket.socket) -> None:
        """Answer the requests of one connection."""
        while True:
            head = read_request(sock).split(b"\r\n\r\n")[0].decode("latin-1")
            first, *lines = head.split("\r\n")
            method, target, _ = first.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self.requests.append(Request(method, target, headers))
            expected = None if self.password is None else basic(self.password)
            page = self.pages.get(target)
            if expected is not None and headers.get("authorization") != expected:
                sock.sendall(answer(b"", "401 Unauthorized"))
            elif page is None:
                sock.sendall(answer(b"", "404 Not Found"))
            elif callable(page):
                page(sock)
                return
            else:
                body = page.encode() if isinstance(page, str) else page
                kind = self.types.get(target, "text/html")
                sock.sendall(answer(body, Content_Type=kind))


def index_with(wheel: Path, password: str | None = None) -> Index:
    """An index of one package."""
    name = wheel.name.partition("-")[0]
    page = link(wheel, f"/files/{wheel.name}")
    return Index({f"/simple/{name}/": page, f"/files/{wheel.name}": wheel.read_bytes()}, password)


def basic(user_and_password: str) -> str:
    """The value of the header that carries a user and a password."""
    return "Basic " + base64.b64encode(user_and_password.encode()).decode()


def redirect(location: str) -> Callable[[socket.socket], None]:
    """A page that leads elsewhere."""
    return lambda sock: sock.sendall(answer(b"", "302 Found", Location=location))
