"""The statistics of a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Z_95 = 1.959964


def pass_at(k: int, tries: int, passed: int) -> float:
    """Return the unbiased estimate that at least one of k tries passes: 1 - C(tries - passed, k) / C(tries, k).

    Args:
        k: How many tries there would be, at most `tries`.
        tries: How often a task was tried.
        passed: How often it passed.
    """
    missed = 1.0
    for each in range(k):
        missed *= max(0, tries - passed - each) / (tries - each)
    return 1.0 - missed


def interval(passed: int, count: int) -> tuple[float, float]:
    """Return the 95% confidence interval of a rate (Wilson).

    Args:
        passed: How many passed.
        count: Of how many, at least 1.
    """
    rate, square = passed / count, Z_95**2
    middle = (rate + square / (2 * count)) / (1 + square / count)
    half = Z_95 * math.sqrt(rate * (1 - rate) / count + square / (4 * count**2)) / (1 + square / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that at least this part of all values does not exceed.

    Args:
        ordered: The values, in order, at least one.
        part: From 0 to 1.
    """
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def mean(values: Iterable[float]) -> float | None:
    """Return the mean, or None if there are no values.

    Args:
        values: The values.
    """
    found = list(values)
    return math.fsum(found) / len(found) if found else None
