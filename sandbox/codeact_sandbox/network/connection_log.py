"""The connection log: what code in a sandbox has requested, and the notes about what was refused."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from codeact_sandbox.network.channels import Channel
from codeact_sandbox.types.result import NetworkConnection

MAX_ENTRIES = 1000
MAX_NOTES = 5


@dataclass
class LogEntry:
    number: int  # its number, in the order in which connections began
    channel: Channel  # counts its bytes
    host: str | None = None  # the host that it requests, or None if that is unknown
    port: int | None = None
    allowed: bool = True  # whether it was allowed
    reason: str | None = None  # why it was refused, or how it failed

    def to_connection(self) -> NetworkConnection:
        sent, received = self.channel.sent, self.channel.received
        return NetworkConnection(self.host, self.port, self.allowed, sent, received, self.reason)


class ConnectionLog:
    """The last `MAX_ENTRIES` connections of one sandbox, and as many remarks for whoever reads a result."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=MAX_ENTRIES)
        self._remarks: deque[tuple[int, str]] = deque(maxlen=MAX_ENTRIES)
        self._lock = threading.Lock()
        self._count = 0

    def add(self, channel: Channel) -> LogEntry:
        with self._lock:
            self._count += 1
            self._entries.append(LogEntry(self._count, channel))
            return self._entries[-1]

    def remark(self, sentence: str) -> None:
        with self._lock:
            self._count += 1
            self._remarks.append((self._count, sentence))

    def mark(self) -> int:
        return self._count

    def since(self, mark: int) -> tuple[NetworkConnection, ...]:
        with self._lock:
            return tuple(entry.to_connection() for entry in self._entries if entry.number > mark)

    def remarks_since(self, mark: int) -> tuple[str, ...]:
        """Return the remarks since a mark, each one once, at most `MAX_NOTES`."""
        with self._lock:
            return tuple(dict.fromkeys(sentence for number, sentence in self._remarks if number > mark))[:MAX_NOTES]


def notes(connections: tuple[NetworkConnection, ...]) -> tuple[str, ...]:
    """Write a sentence about each reason for which connections were refused, for whoever reads the result."""
    reasons = list(dict.fromkeys(each.reason for each in connections if not each.allowed and each.reason))
    sentences = tuple(f"A connection was refused: {reason}." for reason in reasons[:MAX_NOTES])
    if len(reasons) > MAX_NOTES:
        sentences += (f"{len(reasons) - MAX_NOTES} other connections were refused, too.",)
    return sentences
