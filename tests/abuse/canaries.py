"""Files and ports of the host that code in a sandbox must never reach."""

import contextlib
import os
import socket
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

WATCHED = (
    "/etc/passwd",
    "/etc/shadow",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/ld.so.preload",
    "/etc/crontab",
    "/root/.ssh/authorized_keys",
    "/root/.bashrc",
)
SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/fs/binfmt_misc/status",
    "/sys/kernel/uevent_helper",
)
SECRET = "the-canary-sings-4f1c"


@dataclass(frozen=True)
class Mark:
    """What tells an untouched file from a touched one."""

    content: bytes | None
    status: tuple[int, ...] | None


class Canaries:
    """Canary files in and beside a folder, and canary ports on every address of the host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "canary.txt"
        self.link = folder / "link"
        self._sockets: list[socket.socket] = []
        self.tcp_port = self.udp_port = 0
        self.abstract = f"codeact-canary-{os.getpid()}"

    def __enter__(self) -> Self:
        self.file.write_text(SECRET)
        self.link.symlink_to(self.file)
        (self.folder / "script.sh").write_text("#!/bin/sh\ntrue\n")
        (self.folder / "script.sh").chmod(0o755)
        self._tcp = self._open(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0))
        self._udp = self._open(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0))
        self.tcp_port, self.udp_port = self._tcp.getsockname()[1], self._udp.getsockname()[1]
        self._unix = self._open(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract)
        with contextlib.suppress(OSError):  # a host without IPv6
            self._open(socket.AF_INET6, socket.SOCK_STREAM, ("::", self.tcp_port))
            self._open(socket.AF_INET6, socket.SOCK_DGRAM, ("::", self.udp_port))
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()

    def _open(self, family: int, kind: int, address: object) -> socket.socket:
        made = socket.socket(family, kind)
        self._sockets.append(made)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        if kind == socket.SOCK_STREAM:
            made.listen(16)
        made.setblocking(False)
        return made

    def heard(self) -> list[str]:
        """Who has knocked since the last call."""
        found = []
        for each in self._sockets:
            while True:
                try:
                    if each.type == socket.SOCK_STREAM:
                        connection, peer = each.accept()
                        connection.close()
                    else:
                        _, peer = each.recvfrom(4096)
                except BlockingIOError:
                    break
                found.append(f"{each.family.name} {each.type.name} from {peer!r}")
        return found

    def prove(self) -> None:
        """See that the canaries sing: a knock from the host itself is heard."""
        socket.create_connection(("127.0.0.1", self.tcp_port), timeout=5).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", ("127.0.0.1", self.udp_port))
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect("\0" + self.abstract)
        assert len(self.heard()) == 3

    def marks(self) -> dict[str, Mark]:
        """What the watched files are now."""
        own = [str(path) for path in sorted(self.folder.iterdir())]
        found = {path: _mark(path, whole=True) for path in (str(self.folder), *own, *WATCHED)}
        return found | {path: _mark(path, whole=False) for path in SETTINGS}


def _mark(path: str, *, whole: bool) -> Mark:
    content = status = None
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if whole:
            status = (found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_ino, found.st_mtime_ns)
        content = Path(path).read_bytes()
    return Mark(content, status)


def host_addresses() -> list[str]:
    """The IPv4 addresses of this machine, bridges included."""
    found: list[str] = []
    lines = Path("/proc/net/fib_trie").read_text().splitlines()
    for before, line in pairwise(lines):
        address = before.split()[-1]
        if "host LOCAL" in line and address not in found:
            found.append(address)
    return found
