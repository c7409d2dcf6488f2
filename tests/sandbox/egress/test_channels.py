"""Channels: the frames that the supervisor and the host exchange about a connection, and invalid ones."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import SandboxError, SandboxProtocolError
from codeact_sandbox.egress import channels
from codeact_sandbox.egress.connector import Connector
from codeact_sandbox.egress.gateway import MAX_CHANNELS, Gateway
from codeact_sandbox.host import protocol
from codeact_sandbox.types.allowed_domains import Policy
from tests.sandbox.host.test_frames import HELLO, message, raw, sandbox
from tests.sandbox.runner.local_runner import LocalRunner, find_python
from tests.sandbox.runner.test_runner_old_python import VERSIONS, needs_namespaces

WINDOW = 100_000
Frame = tuple[int, dict[str, Any], bytes]


class ProxyRunner:
    """A runner with a proxy, on the network of the tests, and the connections made to it."""

    def __init__(self, runner: LocalRunner) -> None:
        self.runner = runner
        runner.greet()
        self.port = int(runner.run("import os; print(os.environ['HTTPS_PROXY'])")[1].rpartition(":")[2])
        self._socks: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """A connection to its port."""
        sock = socket.create_connection(("127.0.0.1", self.port), 10)
        self._socks.append(sock)
        return sock

    def opened(self) -> tuple[socket.socket, int]:
        """A connection and the number of its channel."""
        sock = self.connect()
        ident, said, data = self.receive()
        assert (said, data) == ({"op": "open"}, b"")
        return sock, ident

    def receive(self) -> Frame:
        """Receive the next frame about a channel."""
        kind, ident, payload = self.runner.receive()
        assert kind == b"N", (kind, payload)
        return (ident, *protocol.unpack(payload))

    def receive_data(self, size: int) -> bytes:
        """Receive that many bytes of channels."""
        data = b""
        while len(data) < size:
            _, said, more = self.receive()
            assert said == {"op": "data"}, said
            data += more
        return data

    def send(self, ident: int, op: str, data: bytes = b"", **more: Any) -> None:
        """Send a frame about a channel."""
        self.runner.send(protocol.pack(b"N", ident, {"op": op, **more}, data))

    def close(self) -> None:
        for sock in self._socks:
            sock.close()


# What Pythons may differ in is shown by the first test on each of them.
OWN_VERSION = f"3.{sys.version_info.minor}"
on_every_python = pytest.mark.parametrize("proxy_runner", VERSIONS, indirect=True)


@pytest.fixture(params=[OWN_VERSION])
def proxy_runner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProxyRunner]:
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} on this machine")
    with LocalRunner(
        python, tmp_path, proxy={"window": WINDOW, "channels": 2, "domains": True, "index": False}
    ) as runner:
        made = ProxyRunner(runner)
        try:
            yield made
        finally:
            made.close()


@needs_namespaces
class TestSupervisor:
    @on_every_python
    def test_supervisor_passes_bytes_and_ends_in_both_directions(self, proxy_runner: ProxyRunner) -> None:
        sock, ident = proxy_runner.opened()
        sock.sendall(b"question")
        assert proxy_runner.receive() == (ident, {"op": "data"}, b"question")
        proxy_runner.send(ident, "data", b"answer")
        assert sock.recv(100) == b"answer"
        sock.shutdown(socket.SHUT_WR)
        assert proxy_runner.receive() == (ident, {"op": "end"}, b"")
        proxy_runner.send(ident, "data", b"more")
        proxy_runner.send(ident, "end")
        assert sock.recv(100) + sock.recv(100) == b"more"
        proxy_runner.send(ident, "close")
        assert proxy_runner.receive() == (ident, {"op": "close"}, b"")

    def test_supervisor_sends_no_more_than_it_has_credit_for(self, proxy_runner: ProxyRunner) -> None:
        sock, ident = proxy_runner.opened()
        sock.sendall(bytes(WINDOW) + b"rest")
        assert proxy_runner.receive_data(WINDOW) == bytes(WINDOW)
        # Only an answer to something else comes now.
        assert proxy_runner.runner.run("print('no credit')")[1] == "no credit\n"
        proxy_runner.send(ident, "credit", bytes=3)
        assert proxy_runner.receive_data(3) == b"res"
        proxy_runner.send(ident, "credit", bytes=100)
        assert proxy_runner.receive_data(1) == b"t"

    def test_supervisor_grants_credit_for_bytes_that_were_passed_on(self, proxy_runner: ProxyRunner) -> None:
        sock, ident = proxy_runner.opened()
        proxy_runner.send(ident, "data", bytes(WINDOW))
        got = 0
        while got < WINDOW:
            got += len(sock.recv(WINDOW))
        credit = 0
        while credit <= WINDOW * 3 // 4:
            said = proxy_runner.receive()
            assert said == (ident, {"op": "credit", "bytes": said[1]["bytes"]}, b"")
            credit += said[1]["bytes"]
        assert credit <= WINDOW


OPEN = raw(b"N", 1, message({"op": "open"}))


class TestHost:
    @pytest.mark.parametrize(
        "sent",
        [
            raw(b"N", 1, b"not a message"),
            raw(b"N", 1, message({})),
            raw(b"N", 1, message({"op": "x"})),
            raw(b"N", 1, message({"op": ["open"]})),
            raw(b"N", 1, message({"op": "data"}, b"of no channel")),
            raw(b"N", 1, message({"op": "close"})),
            OPEN * 2,
            OPEN + raw(b"N", 1, message({"op": "end"}, b"with data")),
            OPEN + raw(b"N", 1, message({"op": "credit", "bytes": -1})),
            OPEN + raw(b"N", 1, message({"op": "credit", "bytes": 1.5})),
            OPEN + raw(b"N", 1, message({"op": "credit", "bytes": 10**9})),
            OPEN + raw(b"N", 1, message({"op": "close"})) * 2,
            OPEN + raw(b"N", 1, message({"op": "data"}, bytes(channels.WINDOW + 1))),
            b"".join(raw(b"N", 1 + number, message({"op": "open"})) for number in range(MAX_CHANNELS + 1)),
        ],
    )  # fmt: skip
    async def test_host_ends_the_sandbox_after_an_invalid_frame(self, sent: bytes) -> None:
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)) + sent)
            other.settimeout(10)
            while other.recv(65536):
                pass

        made, _ = sandbox(play)
        made.gateway = Gateway(Connector(Policy(["ok.example"])))

        async def use() -> None:  # it ends at the start or a moment later
            await made.start()
            await made.blocks.run({}, b"", 5)

        with pytest.raises(SandboxError) as caught:
            await asyncio.wait_for(use(), 10)
        assert isinstance(caught.value, SandboxProtocolError) or isinstance(
            caught.value.__cause__, SandboxProtocolError
        )
        await made.stop()
