"""Forwards calls of host tools between a block's socket and the stream to the host, unread and bounded."""

import collections
import selectors
import socket
import struct

from ..shared import wire

CALL_NUMBER = struct.Struct("!I")
# If more than this waits for the stream, calls wait in the block, so that they don't delay results.
MAX_WAITING_BYTES = 1024 * 1024


class ToolRelay:
    def __init__(self, supervisor, ident, worker):
        self.supervisor = supervisor
        self.ident = ident
        self._worker = worker
        self._max_in_flight = supervisor.config["tools"]["in_flight"]
        self._sock, self.block_end = socket.socketpair()
        self._sock.setblocking(False)
        wire.report_senders(self._sock)
        self._parser = wire.Parser(supervisor.config["tools"]["call_bytes"])
        self._outbox = wire.Outbox(self._sock.fileno())
        # Frames of the block that wait; no more is read meanwhile.
        self._frames = collections.deque()
        # Calls in flight: whether they can still be cancelled, by number.
        self._calls = {}
        self._events = 0
        self._stopped = False
        self._update_events()

    def answer(self, payload):
        if len(payload) < CALL_NUMBER.size:
            raise wire.ProtocolError("an answer to a call without its number")
        (number,) = CALL_NUMBER.unpack_from(payload)
        if self._calls.pop(number, None) is None or self._stopped:
            return
        self._outbox.put(wire.pack(wire.TOOL_ANSWER, number, None, payload[CALL_NUMBER.size :]))
        self.forward()

    def stop(self):
        """Forward nothing any more; the connection stays open."""
        self._stopped = True
        self._frames.clear()
        self._set_events(0)
        self.supervisor.paused_relays.discard(self)

    def close(self):
        self.stop()
        self._outbox.close()
        self._sock.close()

    def _on_ready(self, events):
        if events & selectors.EVENT_READ and not self._frames:
            self._read()
        self.forward()

    def _read(self):
        try:
            data, sender = wire.receive(self._sock)
            if data and sender not in (self._worker.pid, wire.ENDED):
                return
            self._frames.extend(self._parser.feed(data))
        except BlockingIOError:
            return
        except (OSError, wire.ProtocolError):
            data = b""
        if not data:
            self.close()

    def forward(self):
        try:
            if not self._stopped:
                self._outbox.flush()
        except OSError:
            self.close()
        while self._frames and (self._frames[0][0] != wire.TOOL_CALL or self._has_room()):
            kind, number, payload = self._frames.popleft()
            if not self._forward_to_host(kind, number, payload):
                self.close()
        self._update_events()

    def _has_room(self):
        """Return whether one more call can be made; answers that the block has not read count, too."""
        if len(self._calls) + len(self._outbox.chunks) >= self._max_in_flight:
            return False
        if self.supervisor.outbox.size < MAX_WAITING_BYTES:
            return True
        self.supervisor.paused_relays.add(self)
        return False

    def _forward_to_host(self, kind, number, payload):
        head = CALL_NUMBER.pack(number)
        if kind == wire.TOOL_CALL and number not in self._calls:
            self._calls[number] = True
            self.supervisor.send(wire.TOOL_CALL, self.ident, None, head + payload)
        elif kind == wire.CANCEL_CALL:
            # Once for each call; the host answers it all the same, and it is in flight until then.
            if self._calls.get(number):
                self._calls[number] = False
                self.supervisor.send(wire.CANCEL_CALL, self.ident, None, head)
        else:
            return False
        return True

    def _update_events(self):
        if not self._stopped:
            reading = 0 if self._frames else selectors.EVENT_READ
            self._set_events(reading | (selectors.EVENT_WRITE if self._outbox.chunks else 0))

    def _set_events(self, events):
        self.supervisor.loop.set_events(self._sock, self._events, events, self._on_ready)
        self._events = events
