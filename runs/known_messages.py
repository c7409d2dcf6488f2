"""The messages of an interrupted turn that are in the log already, so that they are not written and yielded twice."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

VOLATILE = frozenset({"id", "created_at", "metadata", "models_usage"})
"""Fields that may be different when the same message is made again."""


class KnownMessages:
    """Finds out which messages are in the log already.

    Agents that work at the same time can say the same things in another order than before, so messages are compared one by
    one. What one agent says has the same order each time: a message of it that differs in its content counts as the first one.

    Args:
        agents: Names of the run's agents. Of several with the same name, only messages with the same content are known.
    """

    def __init__(self, agents: Iterable[str] = ()) -> None:
        self._alone = {name for name, count in Counter(agents).items() if count == 1}
        self._by_source: dict[str, list[bytes]] = {}

    def add(self, message: Mapping[str, Any]) -> None:
        """Add a message as it is in the log."""
        self._by_source.setdefault(str(message.get("source")), []).append(_digest(message))

    def clear(self) -> None:
        """Remove all."""
        self._by_source.clear()

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def take(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is in the log already, and remove it if so."""
        source = str(message.get("source"))
        digests = self._by_source.get(source)
        if digests is None:
            return False
        digest = _digest(message)
        if digest in digests:
            digests.remove(digest)
        elif source in self._alone:
            digests.pop(0)
        else:
            return False
        if not digests:
            del self._by_source[source]
        return True


def _digest(message: Mapping[str, Any]) -> bytes:
    lasting = {name: value for name, value in message.items() if name not in VOLATILE}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).digest()
