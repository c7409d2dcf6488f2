"""The supervisor's end of a socket to one of its own processes; nothing on it may block the supervisor."""

import selectors

from . import wire

# A child that the block left behind may hold the same socket and go on writing.
MAX_LAST_READS = 16


class Peer:
    """A socket with frames in both directions; data from other processes than its owner is dropped.

    Args:
        selector: The supervisor's selector.
        on_frame: Called with (type, id, message) for each frame.
        on_close: Called with no arguments when the other side has closed it or sends invalid data.
    """

    def __init__(self, selector, on_frame, on_close):
        self._selector = selector
        self._sock = None
        self._pid = None
        self._on_frame = on_frame
        self._on_close = on_close
        self._outbox = wire.Outbox(-1)
        self._writing = False
        self.closed = False
        self.undelivered = False

    def connect(self, sock, pid=None):
        """Set the socket.

        Args:
            sock: The supervisor's end, unused so far.
            pid: The process at its other end; None if not known yet.
        """
        self._sock, self._pid = sock, pid
        wire.tell_senders(sock)
        sock.setblocking(False)
        self._outbox.fd, self._outbox.sock = sock.fileno(), sock
        # A worker runs user code, so the size of its messages is limited.
        self._parser = wire.Parser(wire.MAX_REPORT)
        self._selector.register(sock, selectors.EVENT_READ, self._ready)
        self._writing = False
        self._flush()

    def belongs_to(self, pid):
        """Set the process at the other end, and send the frames held until now."""
        self._pid = pid
        if not self.closed:
            self._flush()

    def disconnect(self):
        """Close the socket; frames are held for the next one."""
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None

    @property
    def awaited(self):
        """Whether the process has not connected yet."""
        return self._sock is None and not self.closed

    def send(self, frame, fds=()):
        """Send a frame; descriptors go with its first byte, and the caller closes its own."""
        if self.closed:
            self.undelivered = True
            return
        self._outbox.put(frame, fds)
        self._flush()

    def finish(self):
        """Take in what the other side said before it ended, and hang up."""
        for _ in range(MAX_LAST_READS):
            if self._sock is None or not self._receive():
                break
        self.close()

    def close(self):
        """Hang up."""
        if not self.closed:
            self.closed = True
            self.undelivered = self.undelivered or bool(self._outbox.chunks)
            self._outbox.close()
            self.disconnect()

    def _fail(self):
        if not self.closed:
            self.close()
            self._on_close()

    def _ready(self, events):
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
            self._selector.modify(self._sock, events, self._ready)

    def _receive(self):
        """Take in what is there; False when there was nothing."""
        sock = self._sock
        try:
            data, sender = wire.receive(sock)
            if data and sender != self._pid:
                return True
            frames = self._parser.feed(data) if data else None
        except BlockingIOError:
            return False
        except ConnectionResetError:
            # The kernel says so, and not just that the end has come, when the other side ended before it read everything.
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
                message, _ = wire.unpack(payload)
            except wire.ProtocolError:
                self._fail()
                return False
            self._on_frame(kind, ident, message)
            if self._sock is not sock:
                return False
        if self._parser.error is not None:
            self._fail()
        return True
