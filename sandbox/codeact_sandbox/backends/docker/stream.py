"""The attached stream of a container."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

from codeact_sandbox.backends.docker.engine import REQUEST_TIMEOUT

if TYPE_CHECKING:
    from docker import APIClient

DIAGNOSTICS_LIMIT = 16 * 1024
# Seconds without a message from this process after which a sandbox ends itself. On this machine, where a debugger may stop this
# process, the runner notices the end of this process at once, but not that of an engine that was killed.
NETWORK_LEASE_S = 60.0
LOCAL_LEASE_S = 3600.0
# After so long without an acknowledgement the kernel takes the engine's machine for gone.
NETWORK_TIMEOUT_MS = 60_000
_STREAM_HEADER = struct.Struct(">BxxxL")
_STDERR = 2


class DockerStream:
    """The attached stream of a container. Docker puts 8-byte headers before the output; the input is plain bytes."""

    def __init__(self, client: APIClient, container: str) -> None:
        attached: Any = client.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._over_network = _is_over_network(self._socket)
        self._buffer = bytearray()
        self._remaining = 0
        self._kind = 0
        self._diagnostics = bytearray()
        self._exit: Any = None
        try:
            # With auto_remove the exit code is gone afterwards, so it is requested before the start.
            self._exit = client.post(
                f"{client.base_url}/v{client.api_version}/containers/{container}/wait",
                params={"condition": "next-exit"},
                stream=True,
                timeout=(10, REQUEST_TIMEOUT),
            )
        except BaseException:
            self.close()
            raise

    @property
    def read_fd(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    @property
    def write_fd(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def read(self, size: int, /) -> bytes | None:
        """Read from the container's standard output."""
        while True:
            try:
                data = self._socket.recv(size)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            if not data:
                return b""
            out = self._demultiplex(data)
            if out:
                return out

    def _demultiplex(self, data: bytes) -> bytes:
        self._buffer += data
        out = bytearray()
        start = 0
        while True:
            if not self._remaining:
                if len(self._buffer) - start < _STREAM_HEADER.size:
                    break
                self._kind, self._remaining = _STREAM_HEADER.unpack_from(self._buffer, start)
                start += _STREAM_HEADER.size
            piece = self._buffer[start : start + self._remaining]
            start += len(piece)
            self._remaining -= len(piece)
            if self._kind == _STDERR:
                self._diagnostics = (self._diagnostics + piece)[-DIAGNOSTICS_LIMIT:]
            else:
                out += piece
            if self._remaining:
                break
        del self._buffer[:start]
        return bytes(out)

    def write(self, data: memoryview, /) -> int | None:
        """Write to the container's standard input."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def wait_exit(self, timeout_s: float) -> str:
        """Return the container's exit code and what the runner wrote to its standard error."""
        stderr = self._diagnostics.decode("utf-8", "replace").strip()
        code = self._exit_code(timeout_s)
        text = f"its exit code is {code}" if code is not None else "its exit code is not known"
        if code == 137:
            text += " (killed: from outside, or out of memory)"
        return f"{text}; it said: {stderr}" if stderr else text

    def _exit_code(self, timeout_s: float) -> int | None:
        try:
            _socket_of(self._exit.raw).settimeout(timeout_s)
            return int(json.loads(self._exit.content)["StatusCode"])
        except (ValueError, KeyError, AttributeError, OSError):
            return None

    @property
    def lease_s(self) -> float:
        """Seconds without a byte from the host after which the runner exits."""
        return NETWORK_LEASE_S if self._over_network else LOCAL_LEASE_S

    def close(self) -> None:
        """Close the stream; the runner reads its end and exits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for item in (self._exit, getattr(self._attached, "_response", None), self._attached, self._socket):
            if item is not None:
                with contextlib.suppress(OSError):
                    item.close()


def _socket_of(answer: Any) -> Any:
    """Return the socket of an HTTP response; after a "Connection: close" from a proxy, only the response's file has it."""
    sock = getattr(answer.connection, "sock", None)
    return sock if sock is not None else answer._fp.fp.raw._sock


def _is_over_network(sock: socket.socket) -> bool:
    """Return whether a socket is a network connection, which can break without notice to either end."""
    over_network = getattr(sock, "family", None) in (socket.AF_INET, socket.AF_INET6)
    if over_network and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, NETWORK_TIMEOUT_MS)
    return over_network
