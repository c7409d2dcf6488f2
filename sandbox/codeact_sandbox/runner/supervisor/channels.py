"""Channels: connections inside the sandbox whose bytes travel to the host over the stream.

Code opens those of the proxy, the host those of ports. Their bytes are forwarded unread.
"""

import collections
import contextlib
import errno
import selectors
import socket
import time

from ..shared import wire

# Numbers of channels that the host opens; those of the proxy are smaller.
FIRST_OF_HOST = 1 << 31
WINDOW = 256 * 1024
MAX_PIECE = 64 * 1024
LINGER_S = 2.0
CONNECT_TIMEOUT_S = 10.0


class Channels:
    def __init__(self, supervisor, window=WINDOW):
        self.supervisor = supervisor
        self.window = window
        self._channels = {}

    def send(self, ident, op, data=b"", **more):
        self.supervisor.send(wire.CHANNEL, ident, dict(more, op=op), data)

    def on_message(self, ident, message, data):
        channel = self._channels.get(ident)
        if channel is None:
            return
        op = message.get("op")
        if op == "data":
            channel.write(data)
        elif op == "credit" and isinstance(message.get("bytes"), int):
            channel.add_credit(message["bytes"])
        elif op == "end":
            channel.end()
        elif op == "close":
            channel.linger()
        else:
            raise wire.ProtocolError("a channel can't do %r" % op)

    def remove(self, channel):
        del self._channels[channel.ident]
        self.send(channel.ident, "close")

    def on_unread(self):
        """Called when a channel is not read, so that the end of its other side would not be noticed."""


class Channel:
    connecting = False

    def __init__(self, owner, ident, sock):
        self.owner = owner
        self.ident = ident
        self.port = 0
        with contextlib.suppress(OSError):  # the other side has closed it already
            self.port = sock.getpeername()[1]
        self._loop = owner.supervisor.loop
        self._sock = sock
        self._credit = owner.window
        self.last_read = 0.0
        self._held = self._written = 0
        self._waiting = collections.deque()
        self._at_end = self._stalled = self._ending = self._closing = self.ended = False
        self._events = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._update_events()

    @property
    def is_unread(self):
        """Whether the end of its other side would not be noticed."""
        return not (self._stalled or self._events & selectors.EVENT_READ)

    def _update_events(self):
        if self.ended:
            return
        reading = not (self.connecting or self._at_end or self._stalled) and (self._credit > 0 or self._closing)
        writing = self.connecting or self._waiting
        events = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if writing else 0)
        self._loop.set_events(self._sock, self._events, events, self._on_ready)
        self._events = events
        if self.is_unread:
            self.owner.on_unread()

    def _on_ready(self, events):
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            if events & selectors.EVENT_READ and not self.ended:
                self._read()
        except BlockingIOError:
            pass
        except OSError:
            self.drop()
        self._update_events()

    def _read(self):
        if not self._closing and self.owner.supervisor.outbox.chunks:
            self._stall()
            return
        data = self._sock.recv(MAX_PIECE if self._closing else min(MAX_PIECE, self._credit))
        if not data:
            self._at_end = True
            self.owner.send(self.ident, "end")
            self._drop_if_ended()
        elif not self._closing:
            self._credit -= len(data)
            self.owner.send(self.ident, "data", data)
            self.last_read = time.monotonic()
            self._stall()

    def _stall(self):
        """Wait until nothing else waits for the stream: a result must not wait behind data."""
        self._stalled = True
        self.owner.supervisor.stalled.append(self)

    def resume(self):
        self._stalled = False
        self._update_events()

    def add_credit(self, count):
        self._credit += count
        self._update_events()

    def write(self, data):
        self._held += len(data)
        if self._held > self.owner.window:
            raise wire.ProtocolError("channel %d was sent more than it has room for" % self.ident)
        self._waiting.append(memoryview(data))
        self._on_ready(selectors.EVENT_WRITE)

    def _flush(self):
        while self._waiting:
            piece = self._waiting[0]
            sent = self._sock.send(piece)
            self._held -= sent
            self._written += sent
            if sent < len(piece):
                self._waiting[0] = piece[sent:]
            else:
                self._waiting.popleft()
            if self._written >= self.owner.window // 4:
                self.owner.send(self.ident, "credit", bytes=self._written)
                self._written = 0
        if self._ending:
            self._ending = False
            self._sock.shutdown(socket.SHUT_WR)
        if self._closing:
            # The other end may never read the rest; it is not waited for.
            self.owner.supervisor.loop.call_later(LINGER_S, self.drop)
            self._drop_if_ended()

    def end(self):
        """Close the direction from the host when everything has been written."""
        self._ending = True
        self._on_ready(selectors.EVENT_WRITE)

    def linger(self):
        """Close it when the other side has read what was sent, which an abrupt end would discard."""
        self._closing = True
        self.end()

    def _drop_if_ended(self):
        if self._closing and self._at_end and not self._waiting:
            self.drop()

    def drop(self):
        if not self.ended:
            self.ended = True
            self._loop.set_events(self._sock, self._events, 0, self._on_ready)
            self._sock.close()
            self.owner.remove(self)


class Ports(Channels):
    def on_message(self, ident, message, data):
        if message.get("op") != "open":
            super().on_message(ident, message, data)
            return
        port = message.get("port")
        if ident in self._channels or not isinstance(port, int) or not 0 < port < 65536:
            raise wire.ProtocolError("a malformed request to connect to a port")
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # no descriptors are left
            self.send(ident, "close")
            return
        channel = self._channels[ident] = PortChannel(self, ident, sock)
        channel.connect(port)


class PortChannel(Channel):
    connecting = True
    _timer = None

    def connect(self, port):
        self._timer = self._loop.call_later(CONNECT_TIMEOUT_S, self.drop)
        if self._sock.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS):
            self.drop()

    def _flush(self):
        if self.connecting:
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, "not connected")
            try:
                self._sock.getpeername()
            except OSError:  # not yet
                return
            self.connecting = False
            self._loop.cancel(self._timer)
        super()._flush()

    def linger(self):
        super().linger()
        # Nobody is there to whom the rest matters, and the program may never read what was sent.
        self._loop.call_later(LINGER_S, self.drop)

    def drop(self):
        if not self.ended:
            self._loop.cancel(self._timer)
        super().drop()
