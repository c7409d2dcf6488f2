"""Ports of programs in the sandbox to which the host connects, as channels over the stream."""

import errno
import socket

from ..shared import wire
from . import channels

CONNECT_TIMEOUT_S = 10.0


class Ports(channels.Channels):
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


class PortChannel(channels.Channel):
    connecting = True
    _timer = None

    def connect(self, port):
        """Start to connect; only a failure is reported, as an end of the connection."""
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
        self._loop.call_later(channels.LINGER_S, self.drop)

    def drop(self):
        if not self.ended:
            self._loop.cancel(self._timer)
        super().drop()
