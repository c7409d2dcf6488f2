"""A port on the sandbox's loopback, whose connections travel to the host as channels over the stream.

The bytes are forwarded unread: the host parses them, and decides what is allowed.
"""

import collections
import contextlib
import os
import selectors
import socket

from ..shared import packages, wire

MAX_PIECE = 64 * 1024
BACKLOG = 256
LINGER_S = 2.0
ORPHAN_CHECK_S = 1.0
ACCEPT_RETRY_S = 0.1
# Bytes that are read of the kernel's list of sockets, which code could make very long.
LIST_LIMIT = 1024 * 1024
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
NO_PROXY = "localhost,127.0.0.1,::1"


class Proxy:
    """The port and its channels."""

    def __init__(self, supervisor, config):
        self.supervisor = supervisor
        self.window = config["window"]
        self._max_channels = config["channels"]
        self._domains, self._index = config["domains"], config["index"]
        self._channels = {}
        self._count = 0
        self._stalled = collections.deque()
        self._checking_orphans = False
        self._listening = False
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", config.get("port", 0)))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def set_environment(self):
        """Set the variables by which processes that are started from now on find the port; no other proxy can be reached."""
        address = "http://127.0.0.1:%d" % self.port
        if self._domains:
            os.environ.update(dict.fromkeys(PROXY_VARIABLES, address))
            os.environ.update(NO_PROXY=NO_PROXY, no_proxy=NO_PROXY)
        if self._index:
            packages.use_index(address + "/simple/", self.supervisor.config["packages"])

    def was_used(self):
        """Return whether there has been a connection, or none could be accepted."""
        return bool(self._count) or not self._listening

    def listen(self):
        """Accept connections while there are fewer channels than allowed."""
        listening = len(self._channels) < self._max_channels
        if listening and not self._listening:
            self.supervisor.loop.selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif self._listening and not listening:
            self.supervisor.loop.selector.unregister(self._listener)
        self._listening = listening

    def _accept(self, _events):
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptors are left, and the output of blocks needs some
            self.supervisor.loop.selector.unregister(self._listener)
            self._listening = False
            self.supervisor.loop.call_later(ACCEPT_RETRY_S, self.listen)
            return
        self._count += 1
        self._channels[self._count] = Channel(self, self._count, sock)
        self.send(self._count, "open")
        self.listen()

    def send(self, ident, op, data=b"", **more):
        self.supervisor.send(wire.CHANNEL, ident, dict(more, op=op), data)

    def on_message(self, ident, message, data):
        """Handle a message of the host about a channel, which may have ended meanwhile."""
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

    def stall(self, channel):
        """Let a channel continue when nothing else waits for the stream: a result must not wait behind its data."""
        self._stalled.append(channel)

    def resume(self):
        while self._stalled:
            self._stalled.popleft().resume()

    def remove(self, channel):
        del self._channels[channel.ident]
        self.send(channel.ident, "close")
        self.listen()

    def check_orphans(self):
        """Check every second whether the other ends of channels that are not read still belong to a process."""
        if not self._checking_orphans:
            self._checking_orphans = True
            self.supervisor.loop.call_later(0, self._drop_orphans)

    def _drop_orphans(self):
        self._checking_orphans = False
        unread = [channel for channel in self._channels.values() if channel.is_unread]
        if not unread:
            return
        owned = self._owned_ports()
        for channel in unread:
            if owned is not None and channel.port not in owned:
                channel.drop()
        self._checking_orphans = True
        self.supervisor.loop.call_later(ORPHAN_CHECK_S, self._drop_orphans)

    def _owned_ports(self):
        """Return the ports of sockets connected to the proxy that belong to a process; None if the list is too long to tell."""
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
            # A socket without an owner keeps its line for a while, without an inode.
            if len(fields) > 9 and fields[2].endswith(proxy) and fields[9] != b"0":
                owned.add(int(fields[1].rpartition(b":")[2], 16))
        return owned


class Channel:
    """One connection to the port."""

    def __init__(self, proxy, ident, sock):
        self.proxy = proxy
        self.ident = ident
        self.port = 0
        with contextlib.suppress(OSError):  # the other side has closed it already
            self.port = sock.getpeername()[1]
        self._loop = proxy.supervisor.loop
        self._sock = sock
        self._credit = proxy.window
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
        return not self._events & selectors.EVENT_READ

    def _update_events(self):
        if self.ended:
            return
        reading = not self._at_end and not self._stalled and (self._credit > 0 or self._closing)
        events = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self._waiting else 0)
        self._loop.set_events(self._sock, self._events, events, self._on_ready)
        self._events = events
        if self.is_unread:
            self.proxy.check_orphans()

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
        if not self._closing and self.proxy.supervisor.outbox.chunks:
            self._stalled = True
            self.proxy.stall(self)
            return
        data = self._sock.recv(MAX_PIECE if self._closing else min(MAX_PIECE, self._credit))
        if not data:
            self._at_end = True
            self.proxy.send(self.ident, "end")
            self._drop_if_ended()
        elif not self._closing:
            self._credit -= len(data)
            self.proxy.send(self.ident, "data", data)

    def resume(self):
        self._stalled = False
        self._update_events()

    def add_credit(self, count):
        self._credit += count
        self._update_events()

    def write(self, data):
        self._held += len(data)
        if self._held > self.proxy.window:
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
            if self._written >= self.proxy.window // 4:
                self.proxy.send(self.ident, "credit", bytes=self._written)
                self._written = 0
        if self._ending:
            self._ending = False
            self._sock.shutdown(socket.SHUT_WR)
        if self._closing:
            # The other end may never read the rest; it is not waited for.
            self.proxy.supervisor.loop.call_later(LINGER_S, self.drop)
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
            self.proxy.remove(self)
