"""Message authentication codes over the lines of a log: this user has written it, and it is unchanged."""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codeact_sandbox.files.private_folders import state_folder
from codeact_sandbox.files.regular_files import open_regular

KEY_BYTES = 32
_BEFORE, _AFTER, _MAC_BYTES = b',"mac":"', b'"}', 32
_SUFFIX_BYTES = len(_BEFORE) + _MAC_BYTES + len(_AFTER)


@dataclass
class Chain:
    """The codes of a log, line by line. Each depends on all lines before it, and the first one on the file that has the log.

    Args:
        broken: Whether a line had no code, or another one: another user has written or changed the log, or it is a copy.
    """

    key: bytes
    mac: bytes = b""
    broken: bool = False

    def begin(self, log: int) -> None:
        """Begin before the first line.

        Args:
            log: Descriptor of the log. A copy of it has another inode, and other codes; the device is not used, because its
                number can change when the machine starts.
        """
        self.mac, self.broken = self._code(b"codeact run log, inode %d" % os.fstat(log).st_ino), False

    def signed(self, line: bytes) -> bytes:
        """Return the next line with its code as the last field."""
        self.mac = self._code(self.mac + line)
        return line[:-1] + _BEFORE + self.mac + _AFTER

    def check(self, line: bytes) -> None:
        """Take the next line of a log into account; with a wrong code the chain is broken."""
        self.broken = self.broken or not hmac.compare_digest(self.signed(unsigned(line)), line)

    def _code(self, data: bytes) -> bytes:
        return hmac.digest(self.key, data, "sha256").hex()[:_MAC_BYTES].encode()


def unsigned(line: bytes) -> bytes:
    """Return a line of a log without its code, if it has one."""
    return line[:-_SUFFIX_BYTES] + b"}" if line[-_SUFFIX_BYTES:].startswith(_BEFORE) else line


def user_chain(*, make: bool = False) -> Chain | None:
    """Return a chain with the key of this user, which no other user can read; None if there is none."""
    try:
        path = state_folder() / "run.key"
        if make and not path.exists():
            _make_key(path)
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            safe = found.st_uid == os.geteuid() and not found.st_mode & 0o077
            key = file.read(KEY_BYTES + 1) if safe else b""
    except (OSError, RuntimeError):  # a RuntimeError: this user has no home
        return None
    return Chain(key) if len(key) == KEY_BYTES else None


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        with suppress(FileExistsError):
            os.link(part, path)  # never over the key that another process has made meanwhile
    finally:
        part.unlink()
