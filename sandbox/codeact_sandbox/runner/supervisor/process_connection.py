"""The supervisor's connection to one of its own processes; it never blocks the supervisor."""

import selectors

from ..shared import wire

# A process that the block has left behind may hold the same socket and go on writing.
MAX_LAST_READS = 16


class ProcessConnection:
    """A socket with frames in both directions; data from any process but its owner is dropped."""

    def __init__(self, selector, on_frame, on_close):
        self._selector = selector
        self._sock = None
        self._pid = None
        self._on_frame = on_frame
        self._on_close = on_close
        self._outbox = wire.Outbox(-1)
        self._writing = False
        self.closed = False
        # Whether the other side has ended before it read everything.
        self.undelivered = False

    def connect(self, sock, pid=None):
        self._sock, self._pid = sock, pid
        wire.report_senders(sock)
        sock.setblocking(False)
        self._outbox.fd, self._outbox.sock = sock.fileno(), sock
        # A worker runs user code, so the size of its messages is limited.
        self._parser = wire.Parser(wire.MAX_REPORT)
        self._selector.register(sock, selectors.EVENT_READ, self._on_ready)
        self._writing = False
        self._flush()

    def set_owner(self, pid):
        """Set the process at the other end, and send the frames that have waited for that."""
        self._pid = pid
        if not self.closed:
            self._flush()

    def disconnect(self):
        """Close the socket; later frames wait for the next one."""
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None

    @property
    def reconnecting(self):
        """Whether the process is expected to connect again."""
        return self._sock is None and not self.closed

    def send(self, frame, fds=()):
        """Send a frame; descriptors go with its first byte, and the caller closes its own."""
        if self.closed:
            self.undelivered = True
            return
        self._outbox.put(frame, fds)
        self._flush()

    def read_rest(self):
        """Read what the process sent before it ended, and close the connection."""
        for _ in range(MAX_LAST_READS):
            if self._sock is None or not self._receive():
                break
        self.close()

    def close(self):
        if not self.closed:
            self.closed = True
            self.undelivered = self.undelivered or bool(self._outbox.chunks)
            self._outbox.close()
            self.disconnect()

    def _fail(self):
        if not self.closed:
            self.close()
            self._on_close()

    def _on_ready(self, events):
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and self._sock is not None:
            self._receive()

    def _flush(self):
        if self._sock is None or self._pid is None:
            return
        try:
            writing = not self._outbox.flush()
        except OSError:
            self.undelivered = True
            self._fail()
            return
        if writing != self._writing:
            self._writing = writing
            events = selectors.EVENT_READ | selectors.EVENT_WRITE if writing else selectors.EVENT_READ
            self._selector.modify(self._sock, events, self._on_ready)

    def _receive(self):
        """Read once, and deliver the frames; return False when there was nothing to read."""
        sock = self._sock
        try:
            data, sender = wire.receive(sock)
            if data and sender not in (self._pid, wire.ENDED):
                return True
            frames = self._parser.feed(data) if data else None
        except BlockingIOError:
            return False
        except ConnectionResetError:
            # The kernel reports this instead of an end when the other side ended before it had read everything.
            self.undelivered = True
            frames = None
        except (OSError, wire.ProtocolError):
            frames = None
        if frames is None:
            self._fail()
            return False
        for kind, ident, payload in frames:
            try:
                wire.check_report(payload)
                message, data = wire.unpack(payload)
            except wire.ProtocolError:
                self._fail()
                return False
            if data:
                message["data"] = data  # JSON has no bytes, so nothing else can look like this
            self._on_frame(kind, ident, message)
            if self._sock is not sock:
                return False
        if self._parser.error is not None:
            self._fail()
        return True
