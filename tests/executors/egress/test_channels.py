"""Channels: what the supervisor and the host say to each other of a connection, and what they do with nonsense."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import SandboxError, SandboxProtocolError
from autogen_codeact.sandbox.egress.connector import Connector
from autogen_codeact.sandbox.egress.gateway import SETTINGS, Gateway
from autogen_codeact.sandbox.egress.policy import Policy
from autogen_codeact.sandbox.host import protocol
from tests.executors.local_runner import LocalRunner, find_python
from tests.executors.test_frames import HELLO, message, raw, sandbox
from tests.executors.test_runner_old_python import VERSIONS, needs_namespaces

WINDOW = 100_000
Said = tuple[int, dict[str, Any], bytes]


class Offering:
    """A runner that offers a way out, on the network of the tests, and the connections made to it."""

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
        ident, said, data = self.hear()
        assert (said, data) == ({"op": "open"}, b"")
        return sock, ident

    def hear(self) -> Said:
        """What it says next of a channel."""
        kind, ident, payload = self.runner.receive()
        assert kind == b"N", (kind, payload)
        return (ident, *protocol.unpack(payload))

    def hear_data(self, size: int) -> bytes:
        """So many bytes of channels."""
        data = b""
        while len(data) < size:
            _, said, more = self.hear()
            assert said == {"op": "data"}, said
            data += more
        return data

    def say(self, ident: int, op: str, data: bytes = b"", **more: Any) -> None:
        """Say something of a channel."""
        self.runner.send(protocol.pack(b"N", ident, {"op": op, **more}, data))

    def close(self) -> None:
        for sock in self._socks:
            sock.close()


# The oldest, and the one that runs this; what they may differ in is shown by the first test on each of them.
SOME_VERSIONS = (VERSIONS[0], f"3.{sys.version_info.minor}")
on_every_python = pytest.mark.parametrize("offering", VERSIONS, indirect=True)


@pytest.fixture(params=SOME_VERSIONS)
def offering(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Offering]:
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} on this machine")
    with LocalRunner(python, tmp_path, proxy={"window": WINDOW, "channels": 2}) as runner:
        made = Offering(runner)
        try:
            yield made
        finally:
            made.close()


@needs_namespaces
class TestTheSupervisor:
    @on_every_python
    def test_passes_bytes_both_ways_and_the_ends(self, offering: Offering) -> None:
        sock, ident = offering.opened()
        sock.sendall(b"question")
        assert offering.hear() == (ident, {"op": "data"}, b"question")
        offering.say(ident, "data", b"answer")
        assert sock.recv(100) == b"answer"
        sock.shutdown(socket.SHUT_WR)
        assert offering.hear() == (ident, {"op": "end"}, b"")
        offering.say(ident, "data", b"more")
        offering.say(ident, "end")
        assert sock.recv(100) + sock.recv(100) == b"more"
        offering.say(ident, "close")
        assert offering.hear() == (ident, {"op": "close"}, b"")

    def test_sends_no_more_than_it_has_credit_for(self, offering: Offering) -> None:
        sock, ident = offering.opened()
        sock.sendall(bytes(WINDOW) + b"rest")
        assert offering.hear_data(WINDOW) == bytes(WINDOW)
        # Only an answer to something else comes now.
        assert offering.runner.run("print('no credit')")[1] == "no credit\n"
        offering.say(ident, "credit", bytes=3)
        assert offering.hear_data(3) == b"res"
        offering.say(ident, "credit", bytes=100)
        assert offering.hear_data(1) == b"t"

    def test_gives_credit_for_what_was_passed_on(self, offering: Offering) -> None:
        sock, ident = offering.opened()
        offering.say(ident, "data", bytes(WINDOW))
        got = 0
        while got < WINDOW:
            got += len(sock.recv(WINDOW))
        credit = 0
        while credit <= WINDOW * 3 // 4:
            said = offering.hear()
            assert said == (ident, {"op": "credit", "bytes": said[1]["bytes"]}, b"")
            credit += said[1]["bytes"]
        assert credit <= WINDOW

    def test_hears_of_an_abrupt_end(self, offering: Offering) -> None:
        sock, ident = offering.opened()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        assert offering.hear() == (ident, {"op": "close"}, b"")
        offering.say(ident, "data", b"too late")
        offering.say(ident, "credit", bytes=1)
        assert offering.runner.run("print('goes on')")[1] == "goes on\n"

    def test_tells_who_is_gone_from_who_only_listens(self, offering: Offering) -> None:
        listening, first = offering.opened()
        gone, second = offering.opened()
        listening.shutdown(socket.SHUT_WR)
        assert offering.hear() == (first, {"op": "end"}, b"")
        gone.close()
        assert offering.hear() == (second, {"op": "end"}, b"")
        assert offering.hear() == (second, {"op": "close"}, b"")
        offering.say(first, "data", b"still there")
        assert listening.recv(100) == b"still there"

    def test_takes_as_many_as_there_is_room_for_and_the_next_when_one_has_ended(self, offering: Offering) -> None:
        (_, first), _ = offering.opened(), offering.opened()
        offering.connect().sendall(b"third")
        assert offering.runner.run("print('waits')")[1] == "waits\n"
        offering.say(first, "close")
        said = [offering.hear() for _ in range(3)]
        assert sorted(said, key=lambda each: each[0]) == [
            (first, {"op": "close"}, b""),
            (first + 2, {"op": "open"}, b""),
            (first + 2, {"op": "data"}, b"third"),
        ]

    def test_lets_the_last_words_be_read(self, offering: Offering) -> None:
        sock, ident = offering.opened()
        sock.sendall(b"never read")
        offering.hear()
        offering.say(ident, "data", bytes(WINDOW))
        offering.say(ident, "close")
        sock.sendall(b"nor this")
        got = 0
        while piece := sock.recv(WINDOW):
            got += len(piece)
        assert got == WINDOW
        said = offering.hear()
        while said[1]["op"] == "credit":
            said = offering.hear()
        assert said == (ident, {"op": "close"}, b"")  # some seconds later, since this side stays open

    @pytest.mark.parametrize("op", ["open", "x", None, 3])
    def test_ends_on_what_it_does_not_know(self, offering: Offering, op: Any) -> None:
        _, ident = offering.opened()
        offering.say(ident, op)
        kind, _, payload = offering.runner.receive()
        assert (kind, protocol.unpack(payload)[0]) == (b"!", {"error": f"a channel can't do {op!r}"})

    def test_ends_on_more_than_it_has_room_for(self, offering: Offering) -> None:
        _, ident = offering.opened()
        offering.say(ident, "data", bytes(WINDOW + 1))
        kind, _, payload = offering.runner.receive()
        assert kind == b"!"
        assert "was sent more than it has room for" in protocol.unpack(payload)[0]["error"]

    def test_without_a_way_out_knows_no_such_frame(self, tmp_path: Path) -> None:
        with LocalRunner(os.path.realpath("/proc/self/exe"), tmp_path) as runner:
            runner.greet()
            assert runner.run("import os; print([name for name in os.environ if 'PROXY' in name])")[1] == "[]\n"
            runner.send(protocol.pack(b"N", 1, {"op": "close"}))
            kind, _, payload = runner.receive()
            assert (kind, "unknown frame type" in protocol.unpack(payload)[0]["error"]) == (b"!", True)


OPEN = raw(b"N", 1, message({"op": "open"}))


class TestTheHost:
    @pytest.mark.parametrize(
        "sent",
        [
            raw(b"N", 1, b"not a message"),
            raw(b"N", 1, message({})),
            raw(b"N", 1, message({"op": "x"})),
            raw(b"N", 1, message({"op": ["open"]})),
            raw(b"N", 1, message({"op": "data"}, b"of nobody")),
            raw(b"N", 1, message({"op": "close"})),
            OPEN * 2,
            OPEN + raw(b"N", 1, message({"op": "end"}, b"with data")),
            OPEN + raw(b"N", 1, message({"op": "credit", "bytes": -1})),
            OPEN + raw(b"N", 1, message({"op": "credit", "bytes": 1.5})),
            OPEN + raw(b"N", 1, message({"op": "credit", "bytes": 10**9})),
            OPEN + raw(b"N", 1, message({"op": "close"})) * 2,
            OPEN + raw(b"N", 1, message({"op": "data"}, bytes(SETTINGS["window"] + 1))),
            b"".join(raw(b"N", 1 + number, message({"op": "open"})) for number in range(SETTINGS["channels"] + 1)),
        ],
    )  # fmt: skip
    async def test_hangs_up_on_nonsense(self, sent: bytes) -> None:
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)) + sent)
            other.settimeout(10)
            while other.recv(65536):
                pass

        made, _ = sandbox(play)
        made.gateway = Gateway(Connector(Policy(["ok.example"])))

        async def use() -> None:  # it ends at the start or a moment later
            await made.start()
            await made.run({}, b"", 5)

        with pytest.raises(SandboxError) as caught:
            await asyncio.wait_for(use(), 10)
        assert isinstance(caught.value, SandboxProtocolError) or isinstance(
            caught.value.__cause__, SandboxProtocolError
        )
        await made.stop()

    async def test_ends_its_connections_with_the_sandbox(self) -> None:
        def play(other: socket.socket) -> None:
            other.sendall(raw(b"H", 0, message(HELLO)) + OPEN)
            time.sleep(0.2)
            other.close()

        made, _ = sandbox(play)
        made.gateway = gateway = Gateway(Connector(Policy(["ok.example"])))
        await made.start()
        with pytest.raises(SandboxError):
            await asyncio.wait_for(made.run({}, b"", 5), 10)
        await made.stop()
        assert gateway._thread is not None
        assert not gateway._thread.is_alive()
        assert not gateway._serving
