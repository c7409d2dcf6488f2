"""The socket to which the interpreter of a session reconnects after each block.

Processes that a block has started inherit its interpreter's socket. So the next request uses a new connection, which the
interpreter opens after the block, and whose owner the kernel reports.
"""

import os
import selectors
import socket

from ..shared import wire

BACKLOG = 8


class Listener:
    """A listening socket in the abstract namespace, which code can't remove."""

    def __init__(self, selector, on_connection):
        self._on_connection = on_connection
        self.name = "codeact-" + os.urandom(8).hex()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.bind("\0" + self.name)
        self._sock.listen(BACKLOG)
        self._sock.setblocking(False)
        selector.register(self._sock, selectors.EVENT_READ, lambda _: self._accept())

    def close_waiting(self):
        """Close all waiting connections."""
        for _ in range(BACKLOG + 1):
            try:
                self._sock.accept()[0].close()
            except OSError:
                return

    def _accept(self):
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, wire.CREDENTIALS.size)
        self._on_connection(sock, wire.CREDENTIALS.unpack(credentials)[0])
