"""Calls to the host on their way between a block's socket and the stream: passed on unread, and never many at once."""

import collections
import selectors
import socket
import struct

from . import wire

NUMBER = struct.Struct("!I")
# Above this much that waits for the stream, calls wait in the block, so that they don't hold up results.
STREAM_ROOM = 1024 * 1024


class Relay:
    """The supervisor's end of a block's socket.

    Args:
        supervisor: The `Supervisor`.
        ident: The block's number.
        worker: The `Worker` that runs the block; data from other processes is dropped.
    """

    def __init__(self, supervisor, ident, worker):
        self.supervisor = supervisor
        self.ident = ident
        self._worker = worker
        self._in_flight = supervisor.config["tools"]["in_flight"]
        self._sock, self.theirs = socket.socketpair()
        self._sock.setblocking(False)
        wire.tell_senders(self._sock)
        self._parser = wire.Parser(supervisor.config["tools"]["call_bytes"])
        self._outbox = wire.Outbox(self._sock.fileno())
        # What has been read and has to wait; more is not read meanwhile.
        self._frames = collections.deque()
        self._open = {}
        self._events = 0
        self._stopped = False
        self._watch()

    def answer(self, payload):
        """Pass on an answer of the host's.

        Args:
            payload: The call's number and the answer.
        """
        if len(payload) < NUMBER.size:
            raise wire.ProtocolError("an answer to a call without its number")
        (number,) = NUMBER.unpack_from(payload)
        if self._open.pop(number, None) is None or self._stopped:
            return
        self._outbox.put(wire.pack(wire.TOOL_ANSWER, number, None, payload[NUMBER.size :]))
        self._go_on()

    def resume(self):
        """Go on after the stream had no room."""
        self._go_on()

    def stop(self):
        """Pass nothing on any more; the block need not notice."""
        self._stopped = True
        self._frames.clear()
        self._set_events(0)
        self.supervisor.held_relays.discard(self)

    def close(self):
        """Hang up: what has not been passed on will not be."""
        self.stop()
        self._outbox.close()
        self._sock.close()

    def _ready(self, events):
        if events & selectors.EVENT_READ and not self._frames:
            self._read()
        self._go_on()

    def _read(self):
        try:
            data, sender = wire.receive(self._sock)
            if data and sender != self._worker.pid:
                return
            self._frames.extend(self._parser.feed(data))
        except BlockingIOError:
            return
        except (OSError, wire.ProtocolError):
            data = b""
        if not data:
            self.close()

    def _go_on(self):
        """Pass on what there is room for, both ways."""
        try:
            if not self._stopped:
                self._outbox.flush()
        except OSError:
            self.close()
        while self._frames and (self._frames[0][0] != wire.TOOL_CALL or self._has_room()):
            kind, number, payload = self._frames.popleft()
            if not self._pass_on(kind, number, payload):
                self.close()
        self._watch()

    def _has_room(self):
        """Whether one more call may be made: the host works on some, and answers wait until the block reads them."""
        if len(self._open) + len(self._outbox.chunks) >= self._in_flight:
            return False
        if self.supervisor.outbox.size < STREAM_ROOM:
            return True
        self.supervisor.held_relays.add(self)
        return False

    def _pass_on(self, kind, number, payload):
        """Send one frame on to the host; False for what no client of ours sends."""
        head = NUMBER.pack(number)
        if kind == wire.TOOL_CALL and number not in self._open:
            self._open[number] = True
            self.supervisor.send(wire.TOOL_CALL, self.ident, head + payload)
        elif kind == wire.CANCEL_CALL:
            # One word for each call; the host answers it all the same, and the call counts until then.
            if self._open.get(number):
                self._open[number] = False
                self.supervisor.send(wire.CANCEL_CALL, self.ident, head)
        else:
            return False
        return True

    def _watch(self):
        if not self._stopped:
            reading = 0 if self._frames else selectors.EVENT_READ
            self._set_events(reading | (selectors.EVENT_WRITE if self._outbox.chunks else 0))

    def _set_events(self, events):
        if events == self._events:
            return
        selector = self.supervisor.selector
        if not self._events:
            selector.register(self._sock, events, self._ready)
        elif events:
            selector.modify(self._sock, events, self._ready)
        else:
            selector.unregister(self._sock)
        self._events = events
