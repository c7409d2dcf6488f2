"""The supervisor's end of a socket to one of its own processes; nothing on it may block the supervisor."""

import selectors

from . import wire

# A child that the block left behind may hold the same socket and go on writing.
MAX_LAST_READS = 16


class Peer:
    """A socket with frames both ways.

    Args:
        selector: The supervisor's selector.
        sock: The supervisor's end.
        on_frame: Called with (type, id, message) for each frame.
        on_close: Called with no arguments when the other side is gone or talks nonsense.
        held: Whether to send nothing before `release` has been called.
    """

    def __init__(self, selector, sock, on_frame, on_close, held=False):
        self._selector = selector
        self._sock = sock
        self._on_frame = on_frame
        self._on_close = on_close
        # A worker runs user code, so what it says is bounded.
        self._parser = wire.Parser(wire.MAX_REPORT)
        sock.setblocking(False)
        self._outbox = wire.Outbox(sock.fileno(), sock)
        selector.register(sock, selectors.EVENT_READ, self._ready)
        self._writing = False
        self._held = held
        self.closed = False
        self.undelivered = False

    def send(self, frame, fds=()):
        """Send a frame; descriptors go with its first byte, and the caller closes its own."""
        if self.closed:
            self.undelivered = True
            return
        self._outbox.put(frame, fds)
        if not self._held:
            self._flush()

    def release(self):
        """Send what was held, and hold nothing any more."""
        self._held = False
        if not self.closed:
            self._flush()

    def finish(self):
        """Take in what the other side said before it ended, and hang up."""
        for _ in range(MAX_LAST_READS):
            if self.closed or not self._receive():
                break
        self.close()

    def close(self):
        """Hang up."""
        if not self.closed:
            self.closed = True
            self.undelivered = self.undelivered or bool(self._outbox.chunks)
            self._selector.unregister(self._sock)
            self._outbox.close()
            self._sock.close()

    def _fail(self):
        if not self.closed:
            self.close()
            self._on_close()

    def _ready(self, events):
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and not self.closed:
            self._receive()

    def _flush(self):
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
        try:
            # recv, not recvmsg: descriptors that user code sends are dropped by the kernel.
            data = self._sock.recv(wire.READ_SIZE)
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
        if self._parser.error is not None:
            self._fail()
        return True
