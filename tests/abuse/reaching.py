"""What the cases with an allow-list share: code that asks the sandbox's proxy, and servers for it."""

import socket

from tests.sandbox.network.servers import Server

from .subject import Subject

LOOPBACK = "127.0.0.0/8"

ASK = """
    import os, socket, ssl

    def proxy():
        return socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2])), 20)

    def read(sock):
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        return answer

    def ask(request):
        with proxy() as sock:
            sock.sendall(request)
            return read(sock).partition(b"\\r\\n")[0].decode()

    def plain(host, port, path="/", named=None):
        url = f"http://{host}:{port}{path}"
        return ask(f"GET {url} HTTP/1.1\\r\\nHost: {named or f'{host}:{port}'}\\r\\n\\r\\n".encode())

    def connect(host, port):
        return ask(f"CONNECT {host}:{port} HTTP/1.0\\r\\n\\r\\n".encode())

    def tunnel(host, port):
        sock = proxy()
        sock.sendall(f"CONNECT {host}:{port} HTTP/1.0\\r\\n\\r\\n".encode())
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 200 "), head
        return sock

    def tls(host, port, name):
        context = ssl.create_default_context(cafile="/workspace/ca.crt")
        context.check_hostname = name is not None
        return context.wrap_socket(tunnel(host, port), server_hostname=name)
"""

HELLO = """
    def hello(name):
        there = ssl.MemoryBIO()
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.wrap_bio(ssl.MemoryBIO(), there, server_hostname=name).do_handshake()
        except ssl.SSLWantReadError:
            return there.read()
"""


async def start(subject: Subject, *entries: str, **limits: object) -> None:
    """Start the sandbox with that list."""
    await subject.start({"allow_domains": entries}, **limits)


async def out(subject: Subject, code: str, timeout: float = 20) -> list[str]:
    """What a block prints, by lines; it can use what `ASK` defines."""
    return (await subject.out(ASK + (code if code.startswith("\n") else f"\n    {code}"), timeout=timeout)).splitlines()


def allowed(server: Server, name: str = "ok.example") -> str:
    """What allows a server on loopback under that name."""
    return f"{name}:{server.port} in {LOOPBACK}"


class Listener:
    """Notes what comes."""

    def __init__(self, says: bytes = b"") -> None:
        self.heard = b""
        self._says = says

    def __call__(self, sock: socket.socket) -> None:
        while data := sock.recv(65536):
            if not self.heard:
                sock.sendall(self._says)
            self.heard += data
