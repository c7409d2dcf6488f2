"""A port on the sandbox's loopback, whose connections travel to the host as channels over the stream.

The bytes are forwarded unread: the host parses them, and decides what is allowed.
"""

import contextlib
import os
import selectors
import socket

from ..shared import packages
from . import channels

BACKLOG = 256
ORPHAN_CHECK_S = 1.0
ACCEPT_RETRY_S = 0.1
# Bytes that are read of the kernel's list of sockets, which code could make very long.
LIST_LIMIT = 1024 * 1024
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
NO_PROXY = "localhost,127.0.0.1,::1"
# Certificates that are trusted: what the sandbox has, and the authority for hosts that get secrets.
TRUSTED = "/tmp/certificates.pem"  # noqa: S108 - in the sandbox
SYSTEM_TRUSTED = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
# Of OpenSSL (Python's ssl, httpx), requests, curl, git, pip, the AWS tools and node.
TRUST_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip


def trust(authority):
    """Let programs trust a certificate authority, in addition to what they trust."""
    known = ""
    for path in filter(None, (os.environ.get("SSL_CERT_FILE"), *SYSTEM_TRUSTED)):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            known = file.read()
            break
    with open(TRUSTED, "w", encoding="utf-8") as file:
        file.write(known.rstrip("\n") + "\n" + authority)
    os.environ.update(dict.fromkeys(TRUST_VARIABLES, TRUSTED), NODE_USE_ENV_PROXY="1")


class Proxy(channels.Channels):
    def __init__(self, supervisor, config):
        super().__init__(supervisor, config["window"])
        self._max_channels = config["channels"]
        self._domains, self._index, self._authority = config["domains"], config["index"], config.get("authority")
        self._count = 0
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
        if self._authority:
            trust(self._authority)
        if self._index:
            packages.use_index(address + "/simple/", self.supervisor.config["packages"])

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
        self._channels[self._count] = channels.Channel(self, self._count, sock)
        self.send(self._count, "open")
        self.listen()

    def remove(self, channel):
        super().remove(channel)
        self.listen()

    def on_unread(self):
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
