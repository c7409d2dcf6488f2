"""Bounds for arrays and tables that a call sends as JSON: numpy and pandas pad them, which can take far more memory."""

from __future__ import annotations

from typing import Any

FREE = 10_000
RATIO = 20
"""There may be this many times as many cells or characters, once padded, as were sent, and `FREE` more."""
# What numpy makes of a number among texts.
_NUMBER_WIDTH = 32


def check_array(value: Any) -> None:
    """Check lists that become an array: all its texts are as long as the longest one."""
    count = total = longest = 0
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo.extend(item)
        count += 1
        if isinstance(item, str):
            total += len(item)
            longest = max(longest, len(item))
    _check(count * max(longest, _NUMBER_WIDTH) if longest else count, total + _NUMBER_WIDTH * count, "characters")


def check_table(value: Any) -> None:
    """Check rows or columns that become a table: each row gets all columns, and each column all rows."""
    parts = list(value.values() if isinstance(value, dict) else value) if isinstance(value, dict | list) else []
    names = set[str]().union(*(part.keys() for part in parts if isinstance(part, dict)))
    sizes = [len(part) if isinstance(part, list | dict) else 1 for part in parts]
    _check(len(parts) * max(len(names), *sizes, 0, 0), sum(sizes), "cells")


def _check(expanded: int, sent: int, what: str) -> None:
    if expanded > FREE + RATIO * sent:
        raise ValueError(
            f"it would have {expanded:,} {what}, far more than were sent: fill in what is missing, or send less"
        )
