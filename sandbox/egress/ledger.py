"""What code in the sandbox has tried to reach."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from autogen_codeact.sandbox.egress.asked import Asked
from autogen_codeact.sandbox.egress.channel import Channel
from autogen_codeact.sandbox.result import NetworkConnection

MOST_RECORDS = 1000
MOST_NOTES = 5


@dataclass
class Record:
    """One connection.

    Args:
        number: In the order of their beginning.
        channel: Counts its bytes.
        asked: What it asks for, or None where that can't be told.
        allowed: Whether it was.
        reason: Why it was not, or how it failed.
    """

    number: int
    channel: Channel
    asked: Asked | None = None
    allowed: bool = True
    reason: str | None = None

    def shown(self) -> NetworkConnection:
        """It as it stands now."""
        host, port = (self.asked.host, self.asked.port) if self.asked is not None else (None, None)
        return NetworkConnection(
            host, port, self.allowed, sent=self.channel.sent, received=self.channel.received, reason=self.reason
        )


class Ledger:
    """The connections of one sandbox, the last `MOST_RECORDS` of them."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=MOST_RECORDS)
        self._lock = threading.Lock()
        self._count = 0

    def open(self, channel: Channel) -> Record:
        """Note a connection that has asked for something."""
        with self._lock:
            self._count += 1
            record = Record(self._count, channel)
            self._records.append(record)
        return record

    def mark(self) -> int:
        """What `since` takes, to tell what has begun from now on."""
        with self._lock:
            return self._count

    def since(self, mark: int) -> tuple[NetworkConnection, ...]:
        """The connections that have begun since, with what is known of them now."""
        with self._lock:
            found = [record for record in self._records if record.number > mark]
        return tuple(record.shown() for record in found)


def notes(connections: tuple[NetworkConnection, ...]) -> tuple[str, ...]:
    """Sentences about what was refused, each once, for who reads the result."""
    reasons = list(dict.fromkeys(each.reason for each in connections if not each.allowed and each.reason))
    said = tuple(f"A connection was refused: {reason}." for reason in reasons[:MOST_NOTES])
    if len(reasons) > MOST_NOTES:
        said += (f"{len(reasons) - MOST_NOTES} other connections were refused, too.",)
    return said
