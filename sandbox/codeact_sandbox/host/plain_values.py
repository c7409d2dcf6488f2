"""The value of a block's last expression, from the JSON of `runner/values.py`. It is untrusted: nothing of it is evaluated."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from codeact_sandbox.runner.worker import values
from codeact_sandbox.types.json_nesting import check_nesting

_encode: Callable[[Any], str | None] = values.encode
MAX_NESTING = 64
MAX_EQUAL_HASHES = 50  # sets and dicts of keys with the same hash take time that grows with the square of their number
_LONE_SURROGATE = re.compile(r"(?<!\\)(?:\\\\)*\\u[dD]")  # the sandbox escapes no character that can be encoded


def decode(text: object) -> Any:
    """Return the value; None if there is none, or if it is malformed, too large or nested too deeply."""
    if not isinstance(text, str) or len(text) > values.PLAIN_BYTES or _LONE_SURROGATE.search(text):
        return None
    try:
        check_nesting(text.encode(), MAX_NESTING)
        return json.loads(text, object_hook=_untagged)
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def to_json(value: Any) -> Any:
    """Return a value as what JSON has; None if it is not plain."""
    text = _encode(value)
    return None if text is None else json.loads(text)


def of_json(value: Any) -> Any:
    """Return the value that `to_json` has been given; None if it is malformed."""
    try:
        return decode(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return None


def _untagged(tagged: dict[str, Any]) -> Any:
    ((kind, parts),) = tagged.items()
    if not isinstance(parts, str if kind in ("bytes", "float") else list):
        raise TypeError("it has parts of a wrong type")
    return _MAKERS[kind](parts)


def _hashable(parts: list[Any]) -> list[Any]:
    if parts and max(Counter(map(hash, parts)).values()) > MAX_EQUAL_HASHES:
        raise ValueError("too many of its keys have the same hash")
    return parts


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(*parts),
    "dict": lambda parts: dict(zip(_hashable(parts[0]), parts[1], strict=True)),
    "float": float,
    "frozenset": lambda parts: frozenset(_hashable(parts)),
    "set": lambda parts: set(_hashable(parts)),
    "tuple": tuple,
}
