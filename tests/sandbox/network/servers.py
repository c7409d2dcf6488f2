"""Hosts for the code to reach: real servers on loopback, with certificates of a CA of the tests."""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import trustme

Handler = Callable[[socket.socket], None]
HOST = "127.0.0.1"
CA = "ca.crt"


class Server:
    """A server that passes each connection to a function in a thread of its own."""

    def __init__(
        self, handler: Handler, context: ssl.SSLContext | None = None, address: tuple[str, int] = (HOST, 0)
    ) -> None:
        self._handler = handler
        self._context = context
        self._listener = socket.create_server(address, backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.open = 0
        self._lock = threading.Lock()
        self._accepted: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self.open += 1
                self._accepted.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        used = sock
        try:
            with contextlib.suppress(OSError):
                if self._context is not None:
                    used = self._context.wrap_socket(sock, server_side=True)
                self._accepted.append(used)
                self._handler(used)
        finally:
            used.close()
            with self._lock:
                self.open -= 1

    def close(self) -> None:
        """Stop listening and end every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._accepted:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, where a handler may be sending
        for thread in self._threads:
            thread.join(10)


class Hosts:
    """Servers, their names, and the CA that signs their certificates."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_file = folder / CA
        self.ca.cert_pem.write_to_path(str(self.ca_file))
        self.addresses: dict[str, Sequence[str]] = {}
        self.asked: list[str] = []
        self._servers: list[Server] = []

    def resolve(self, name: str) -> Sequence[str]:
        """The resolver of the executors under test."""
        self.asked.append(name)
        try:
            return self.addresses[name]
        except KeyError:
            raise OSError(f"no such name: {name}") from None

    def serve(self, handler: Handler, *names: str, tls: bool = False, address: tuple[str, int] = (HOST, 0)) -> Server:
        """Start a server for these names."""
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.ca.issue_cert(*names, HOST).configure_cert(context)
        server = Server(handler, context, address)
        self._servers.append(server)
        for name in names:
            self.addresses.setdefault(name, [HOST])
        return server

    def close(self) -> None:
        """Stop all servers."""
        for server in self._servers:
            server.close()


@contextlib.contextmanager
def hosts_in(folder: Path) -> Iterator[Hosts]:
    """Hosts until the end of a test."""
    hosts = Hosts(folder)
    try:
        yield hosts
    finally:
        hosts.close()


def read_request(sock: socket.socket) -> bytes:
    """Read an HTTP request, including its body if it gives its length."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0 or len(data) < end + 4 + _body_length(data[:end]):
        more = sock.recv(65536)
        if not more:
            raise ConnectionError("no request")
        data += more
    return data


def _body_length(head: bytes) -> int:
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


def answer(body: bytes, status: str = "200 OK", **headers: Any) -> bytes:
    """Make an HTTP response."""
    named = {"Content-Length": len(body), **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def echo_request(sock: socket.socket) -> None:
    """Respond with the request."""
    sock.sendall(answer(read_request(sock)))
