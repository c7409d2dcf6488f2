"""Formats numbers for sentences."""

from __future__ import annotations


def format_count(number: int, name: str, plural: str | None = None) -> str:
    """Format a number of things: "1 task", "1,200 tasks"."""
    return f"{number:,} {name if number == 1 else plural or f'{name}s'}"


def format_percent(part: float) -> str:
    """Format a fraction as a percentage: "66.7%"."""
    return f"{100 * part:.1f}%"
