"""K26 and K27. A supervisor that sends whatever it likes: bounded memory, an event loop that goes on, typed errors, no hang."""

import asyncio
import struct
import threading
from pathlib import Path

from autogen_codeact.executors import SandboxProtocolError
from codeact_sandbox.host.chunks import OutputChunks
from codeact_sandbox.host.connection import Connection
from codeact_sandbox.runner.shared import wire
from tests.sandbox.host.test_frames import HELLO, SocketStream, message, raw

from .lag import MOST_EXCESS_S, LoopLag
from .oracles import MIB

FLOODS = {
    "empty output": raw(b"O", 1, b""),
    "output of one byte": raw(b"O", 1, b"x"),
    "output of a block that is not there": raw(b"E", 9, b"x"),
    "answers to nothing": raw(b"A", 9, message({})),
    "displays of a block that is not there": raw(b"V", 9, message({"clear": True})),
    "cancelled calls": raw(b"U", 1, struct.pack("!I", 7)),
    "frames of 8 MB": raw(b"O", 9, bytes(8 * MIB)),
}
FLOOD_S = 1.0


class Flood:
    """A connection to a supervisor that sends one thing again and again, and reads nothing."""

    def __init__(self, piece: bytes, limit: int = MIB) -> None:
        self._stream = SocketStream()
        self.connection = Connection(self._stream, "flooding")
        self._chunks = OutputChunks(limit)
        self._ended = False
        self._sender = threading.Thread(target=self._send, args=(piece * (MIB // len(piece) or 1),))

    def _send(self, much: bytes) -> None:
        try:
            self._stream.other.sendall(raw(b"H", 0, message(HELLO)))
            while not self._ended:
                self._stream.other.sendall(much)
        except OSError:
            pass  # the host has hung up

    async def run(self, seconds: float = FLOOD_S) -> Exception | None:
        """Let it go on for a while; return the error of the block that waits, if it has failed."""
        room = 2 * MIB
        self.connection.open()
        reply = self.connection.request(wire.RUN_BLOCK, 1, {}, output_room=room, on_output=self._chunks.listener(0))
        reading = asyncio.ensure_future(self._read())
        self._sender.start()
        try:
            await asyncio.wait({asyncio.wrap_future(reply), reading}, timeout=seconds, return_when="FIRST_COMPLETED")
            return reply.exception() if reply.done() else None
        finally:
            self._ended = True
            reading.cancel()
            assert await asyncio.to_thread(self.connection.close, 10)
            self._stream.other.close()
            self._sender.join(10)
            reply.exception(1)

    async def _read(self) -> None:
        async for _ in self._chunks:
            pass


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# Case K27.
async def test_floods_of_frames_take_no_memory_and_no_time_of_the_loop() -> None:
    for name, piece in FLOODS.items():
        before = resident()
        async with LoopLag() as lag:
            error = await Flood(piece).run()
        assert error is None or isinstance(error, SandboxProtocolError), (name, error)
        assert resident() - before < 64 * MIB, name
        assert lag.excess_s < 2 * MOST_EXCESS_S, name
