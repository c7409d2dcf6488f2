"""Formats the numbers, times and progress of `codeact batch`."""

from __future__ import annotations

from autogen_codeact.batch.progress import BatchCounts


def format_number(number: int) -> str:
    """Format a number: "12", "1,234"."""
    return f"{number:,}"


def format_tokens(number: int) -> str:
    """Format a number of tokens: "950", "12.3 k", "4.56 M"."""
    if number < 1000:
        return str(number)
    return f"{number / 1e3:.1f} k" if number < 999_950 else f"{number / 1e6:.2f} M"


def format_cost(cost: float) -> str:
    """Format an amount of money: "0.0152", "12.30"."""
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.4f}"


def format_time_left(seconds: float) -> str:
    """Format the time that is left: "8 s", "12 min", "3 h 05 min", "2 days 4 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} days {hours % 24} h"


def format_rate(per_minute: float) -> str:
    """Format a rate: "0.4 tasks/min", "12 tasks/min"."""
    number = f"{per_minute:.1f}" if per_minute < 10 else f"{per_minute:,.0f}"
    return f"{number} tasks/min"


def describe_progress(counts: BatchCounts) -> list[str]:
    """Return the parts of a progress line, the most important first."""
    total = f" of {format_number(counts.total)}" if counts.total is not None else ""
    parts = [f"{format_number(counts.done)}{total} done", f"{format_number(counts.failed)} failed"]
    parts.append(f"{format_number(counts.running)} running")
    if counts.invalid:
        parts.append(f"{format_number(counts.invalid)} unusable")
    if counts.waiting:
        soon = counts.next_attempt_in is None or counts.next_attempt_in < 1
        when = "" if soon else f" (the first in {format_time_left(counts.next_attempt_in or 0)})"
        parts.append(f"{format_number(counts.waiting)} to try again{when}")
    if counts.checked:
        parts.append(f"{format_number(counts.passed)} of {format_number(counts.checked)} passed")
    if counts.tasks_per_minute:
        parts.append(format_rate(counts.tasks_per_minute))
    if counts.tokens:
        parts.append(f"{format_tokens(counts.tokens)} {'token' if counts.tokens == 1 else 'tokens'}")
    if counts.cost is not None:
        parts.append(f"cost {format_cost(counts.cost)}")
    if counts.seconds_left is not None:
        parts.append(f"about {format_time_left(counts.seconds_left)} left")
    return parts
