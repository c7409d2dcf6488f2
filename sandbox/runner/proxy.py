"""The sandbox's end of its way out: a port on loopback, whose connections travel as channels over the stream.

Nothing here understands what goes through; the host does, and decides.
"""

import collections
import os
import selectors
import socket

from . import wire

PIECE = 64 * 1024
BACKLOG = 256
LINGER_S = 2.0
ORPHANS_S = 1.0
NO_ROOM_S = 0.1
# What is looked at of the kernel's list of sockets, which code could make very long.
LIST_LIMIT = 1024 * 1024
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
LOCAL = "localhost,127.0.0.1,::1"


class Proxy:
    """The port and its channels.

    Args:
        supervisor: The `Supervisor`.
        config: `window`, bytes that each side of a channel may send ahead, and `channels`, how many there may be at once.
    """

    def __init__(self, supervisor, config):
        self.supervisor = supervisor
        self.window = config["window"]
        self._most = config["channels"]
        self._channels = {}
        self._count = 0
        self._stalled = collections.deque()
        self._looking = False
        self._listening = False
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def tell(self):
        """Tell everything that is started from now on where the port is; no other proxy can be reached."""
        os.environ.update(dict.fromkeys(NAMES, "http://127.0.0.1:%d" % self.port))
        os.environ.update(NO_PROXY=LOCAL, no_proxy=LOCAL)

    def listen(self):
        """Take connections while there is room for more."""
        listening = len(self._channels) < self._most
        if listening and not self._listening:
            self.supervisor.selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif self._listening and not listening:
            self.supervisor.selector.unregister(self._listener)
        self._listening = listening

    def _accept(self, _events):
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptors are left: those of the blocks' output need them, too
            self.supervisor.selector.unregister(self._listener)
            self._listening = False
            self.supervisor.after(NO_ROOM_S, self.listen)
            return
        self._count += 1
        self._channels[self._count] = Channel(self, self._count, sock)
        self.send(self._count, "open")
        self.listen()

    def send(self, ident, op, data=b"", **more):
        """Tell the host something of a channel."""
        self.supervisor.send_message(wire.CHANNEL, ident, dict(more, op=op), data)

    def hear(self, ident, message, data):
        """Take what the host says of a channel; it may have ended meanwhile."""
        channel = self._channels.get(ident)
        if channel is None:
            return
        op = message.get("op")
        if op == "data":
            channel.write(data)
        elif op == "credit" and isinstance(message.get("bytes"), int):
            channel.credited(message["bytes"])
        elif op == "end":
            channel.end()
        elif op == "close":
            channel.linger()
        else:
            raise wire.ProtocolError("a channel can't do %r" % op)

    def stall(self, channel):
        """Let a channel read on when the stream to the host has room: a result must not wait behind what it sends."""
        self._stalled.append(channel)

    def resume(self):
        """The stream has room."""
        while self._stalled:
            self._stalled.popleft().resume()

    def forget(self, channel):
        """A channel has ended."""
        del self._channels[channel.ident]
        self.send(channel.ident, "close")
        self.listen()

    def look_for_orphans(self):
        """See, now and then, whether those who hear without speaking are still there."""
        if not self._looking:
            self._looking = True
            self.supervisor.after(0, self._look)

    def _look(self):
        self._looking = False
        silent = [channel for channel in self._channels.values() if channel.silent]
        if not silent:
            return
        owned = self._owned_ports()
        for channel in silent:
            if owned is not None and channel.port not in owned:
                channel.drop()
        self._looking = True
        self.supervisor.after(ORPHANS_S, self._look)

    def _owned_ports(self):
        """Ports of the sockets towards the proxy that a process still has; None where the list is too long to tell."""
        proxy = b":%04X" % self.port
        owned = set()
        try:
            with open("/proc/net/tcp", "rb") as file:
                text = file.read(LIST_LIMIT)
        except OSError:
            return None
        if len(text) == LIST_LIMIT:
            return None
        for line in text.splitlines()[1:]:
            fields = line.split()
            # A socket that nobody has any more keeps its line for a while, without an inode.
            if len(fields) > 9 and fields[2].endswith(proxy) and fields[9] != b"0":
                owned.add(int(fields[1].rpartition(b":")[2], 16))
        return owned


class Channel:
    """One connection to the port.

    Args:
        proxy: The `Proxy`.
        ident: Its number.
        sock: Its socket.
    """

    def __init__(self, proxy, ident, sock):
        self.proxy = proxy
        self.ident = ident
        self.port = sock.getpeername()[1] if _connected(sock) else 0
        self._selector = proxy.supervisor.selector
        self._sock = sock
        self._credit = proxy.window
        self._held = self._written = 0
        self._waiting = collections.deque()
        self._at_end = self._stalled = self._ending = self._closing = self.ended = False
        self._events = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    @property
    def silent(self):
        """Whether nothing would be heard of its other end's death."""
        return not self._events & selectors.EVENT_READ

    def _watch(self):
        if self.ended:
            return
        reading = not self._at_end and not self._stalled and (self._credit > 0 or self._closing)
        events = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self._waiting else 0)
        if events != self._events:
            if not self._events:
                self._selector.register(self._sock, events, self._ready)
            elif not events:
                self._selector.unregister(self._sock)
            else:
                self._selector.modify(self._sock, events, self._ready)
            self._events = events
        if self.silent:
            self.proxy.look_for_orphans()

    def _ready(self, events):
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            if events & selectors.EVENT_READ and not self.ended:
                self._read()
        except BlockingIOError:
            pass
        except OSError:
            self.drop()
        self._watch()

    def _read(self):
        if not self._closing and self.proxy.supervisor.outbox.chunks:
            self._stalled = True
            self.proxy.stall(self)
            return
        data = self._sock.recv(PIECE if self._closing else min(PIECE, self._credit))
        if not data:
            self._at_end = True
            self.proxy.send(self.ident, "end")
            self._drop_if_over()
        elif not self._closing:
            self._credit -= len(data)
            self.proxy.send(self.ident, "data", data)

    def resume(self):
        """Read on."""
        self._stalled = False
        self._watch()

    def credited(self, count):
        """The host takes so many more bytes."""
        self._credit += count
        self._watch()

    def write(self, data):
        """Pass on what the host has sent."""
        self._held += len(data)
        if self._held > self.proxy.window:
            raise wire.ProtocolError("channel %d was sent more than it has room for" % self.ident)
        self._waiting.append(memoryview(data))
        self._ready(selectors.EVENT_WRITE)

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
            if self._written >= self.proxy.window // 4:
                self.proxy.send(self.ident, "credit", bytes=self._written)
                self._written = 0
        if self._ending:
            self._ending = False
            self._sock.shutdown(socket.SHUT_WR)
        if self._closing:
            # Its other end may keep what it has not asked for; nothing waits for that.
            self.proxy.supervisor.after(LINGER_S, self.drop)
            self._drop_if_over()

    def end(self):
        """The host has nothing more to send."""
        self._ending = True
        self._ready(selectors.EVENT_WRITE)

    def linger(self):
        """The host has closed it: let the other side read what was sent, which an abrupt end would take away."""
        self._closing = True
        self.end()

    def _drop_if_over(self):
        if self._closing and self._at_end and not self._waiting:
            self.drop()

    def drop(self):
        """Close it and tell the host."""
        if not self.ended:
            self.ended = True
            if self._events:
                self._selector.unregister(self._sock)
            self._sock.close()
            self.proxy.forget(self)


def _connected(sock):
    try:
        sock.getpeername()
    except OSError:  # it has hung up already
        return False
    return True
