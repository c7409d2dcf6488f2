"""Numbers in sentences, in the same form everywhere."""

from __future__ import annotations


def counted(number: int, name: str, plural: str | None = None) -> str:
    """Return a number of things: "1 task", "1,200 tasks".

    Args:
        number: How many.
        name: What one of them is called.
        plural: What several are called. Default: the same with an "s".
    """
    return f"{number:,} {name if number == 1 else plural or f'{name}s'}"


def percent(part: float, digits: int = 1) -> str:
    """Return a part of a whole: "66.7%".

    Args:
        part: From 0 to 1.
        digits: After the point. Default 1.
    """
    return f"{100 * part:.{digits}f}%"
