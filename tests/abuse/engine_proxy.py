"""An engine that misbehaves on request: a socket in front of the real one that answers, holds up, freezes or drops requests."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ENGINE = "/var/run/docker.sock"
HEAD_LIMIT = 64 * 1024

Action = Literal["answer", "drop", "drop answer", "hold", "hold answer"]


@dataclass
class Rule:
    """What happens to requests of one kind.

    Args:
        method: Their method.
        path: Regular expression that is found in their path.
        action: `answer` in the engine's place, `drop` the connection before or after the engine has had the request, `hold`
            it or the engine's answer to it until `release` is called.
        reply: What is answered, as it goes over the wire.
        times: How often; None for always.
    """

    method: str
    path: str
    action: Action
    reply: bytes = b""
    times: int | None = None
    seen: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let what is held go on."""
        self._released.set()

    def wait(self) -> None:
        """Wait for `release`."""
        self._released.wait(50)


def failure(status: int, message: str) -> bytes:
    """An engine's refusal."""
    body = b'{"message": "%s"}' % message.encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


@dataclass
class Fault:
    """What happens in the middle of a transfer.

    Args:
        up: Whether bytes to the engine are counted, else those from it.
        left: How many pass before.
        act: Called then, once, in the connection's thread; whether the connection goes on.
    """

    up: bool
    left: int
    act: Callable[[], bool]
    done: threading.Event = field(default_factory=threading.Event)


class EngineProxy:
    """A socket in front of the engine."""

    def __init__(self, listener: socket.socket, address: str, engine: str) -> None:
        self.address = address
        self.requests: list[str] = []
        self.fault: Fault | None = None
        self._engine = engine
        self._listener = listener
        self._rules: list[Rule] = []
        self._open: set[socket.socket] = set()
        self._frozen = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, name="engine-proxy")

    def on(self, method: str, path: str, action: Action, *, reply: bytes = b"", times: int | None = None) -> Rule:
        """Add a rule; the first that fits a request holds."""
        rule = Rule(method, path, action, reply, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Be an honest proxy from now on."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def freeze(self) -> None:
        """Pass nothing on any more and close nothing, as a network does that has lost its way."""
        self._frozen.set()

    def thaw(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._frozen.clear()

    def cut(self) -> None:
        """End every connection, as an engine does that ends."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End every connection and every thread."""
        self._closed = True
        self.clear()
        self._listener.close()
        self.cut()
        for thread in (self._acceptor, *self._threads):
            if thread.ident is not None:
                thread.join(10)

    def start(self) -> None:
        """Take connections."""
        self._listener.settimeout(0.05)
        self._acceptor.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            client.setblocking(True)
            thread = threading.Thread(target=self._guard, args=(client,), name="engine-proxy-connection")
            self._threads.append(thread)
            thread.start()

    def _guard(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with contextlib.suppress(OSError):
                self._serve(client)
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()

    def _serve(self, client: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data and len(data) < HEAD_LIMIT:
            piece = client.recv(HEAD_LIMIT)
            if not piece:
                return
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        method, path = head.split(b"\r\n")[0].decode().split()[:2]
        self.requests.append(f"{method} {path}")
        rule = self._find(method, path)
        if rule is not None:
            rule.seen.set()
            if rule.action == "hold":
                rule.wait()
                if _has_gone(client):
                    return
            elif rule.action != "hold answer" and rule.action != "drop answer":
                client.sendall(rule.reply)
                return
        if b"\r\nupgrade:" not in head.lower():
            # One request a connection: what follows on it needs no parsing.
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            head = b"\r\n".join([*lines, b"Connection: close"])
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self._engine)
            engine.sendall(head + b"\r\n\r\n" + rest)
            self._pump(client, engine, rule)

    def _find(self, method: str, path: str) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.method == method and re.search(rule.path, path) and rule.times != 0:
                    rule.times = rule.times - 1 if rule.times is not None else None
                    return rule
        return None

    def _pump(self, client: socket.socket, engine: socket.socket, rule: Rule | None) -> None:
        first = True
        while not self._closed:
            readable, _, _ = select.select([client, engine], [], [], 0.05)
            for source in readable:
                if self._frozen.is_set():
                    time.sleep(0.05)
                    continue
                piece = source.recv(256 * 1024)
                if not piece:
                    return
                if source is engine and first and rule is not None:
                    first = False
                    if rule.action == "drop answer":
                        return
                    if rule.action == "hold answer":
                        rule.wait()
                target, fault = (engine if source is client else client), self.fault
                if fault is not None and fault.up == (source is client) and not fault.done.is_set():
                    fault.left -= len(piece)
                    if fault.left <= 0:
                        cut = len(piece) + fault.left
                        target.sendall(piece[:cut])
                        piece = piece[cut:]
                        fault.done.set()
                        if not fault.act():
                            return
                        while self._frozen.is_set() and not self._closed:
                            time.sleep(0.05)
                target.sendall(piece)


def _has_gone(client: socket.socket) -> bool:
    readable, _, _ = select.select([client], [], [], 0)
    return bool(readable) and not client.recv(1, socket.MSG_PEEK)


@contextmanager
def engine_proxy(*, engine: str = ENGINE, network: bool = False) -> Iterator[EngineProxy]:
    """Put a proxy in front of an engine."""
    with tempfile.TemporaryDirectory(prefix="proxy") as folder:
        listener = socket.socket(socket.AF_INET if network else socket.AF_UNIX)
        listener.bind(("127.0.0.1", 0) if network else str(Path(folder, "s")))
        listener.listen(64)
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}" if network else f"unix://{folder}/s"
        proxy = EngineProxy(listener, address, engine)
        proxy.start()
        try:
            yield proxy
        finally:
            proxy.close()
