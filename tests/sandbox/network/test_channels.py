"""Channels: the frames that the supervisor and the host exchange about a connection, and invalid ones."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import SandboxError, SandboxProtocolError
from codeact_sandbox.host import protocol
from codeact_sandbox.network import channels
from codeact_sandbox.network.connector import Connector
from codeact_sandbox.network.gateway import MAX_CHANNELS, Gateway
from codeact_sandbox.types.allowed_domains import Policy
from tests.sandbox.host.test_frames import HELLO, message, raw, sandbox
from tests.sandbox.runner.local_runner import LocalRunner
from tests.sandbox.runner.test_runner_old_python import needs_namespaces, python

__all__ = ["python"]  # a fixture


@needs_namespaces
def test_supervisor_passes_bytes_and_ends_in_both_directions(python: str, tmp_path: Path) -> None:
    proxy = {"window": 100_000, "channels": 2, "domains": True, "index": False}
    with LocalRunner(python, tmp_path, proxy=proxy) as runner:
        runner.greet()
        _, address = runner.run("import os; print(os.environ['HTTPS_PROXY'])")

        def receive() -> tuple[int, dict[str, Any], bytes]:
            kind, ident, payload = runner.receive()
            assert kind == b"N", (kind, payload)
            return (ident, *protocol.unpack(payload))

        def send(op: str, data: bytes = b"") -> None:
            runner.send(protocol.pack(b"N", ident, {"op": op}, data))

        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 10) as sock:
            ident, *opened = receive()
            assert opened == [{"op": "open"}, b""]
            sock.sendall(b"question")
            assert receive() == (ident, {"op": "data"}, b"question")
            send("data", b"answer")
            assert sock.recv(100) == b"answer"
            sock.shutdown(socket.SHUT_WR)
            assert receive() == (ident, {"op": "end"}, b"")
            send("data", b"more")
            send("end")
            assert sock.recv(100) + sock.recv(100) == b"more"
            send("close")
            assert receive() == (ident, {"op": "close"}, b"")


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
