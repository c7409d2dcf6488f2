"""Functions for text that comes from models and from code."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_JSON_OPENINGS = 200
DATA_CHARS = 8_000
_WORD = re.compile(r"[^\W\d_]{2}")
REPEATING_CHARS = 1_000
"""A text whose last 1,000 characters are one part again and again does not end by itself."""
MAX_PERIOD = 200


def shorten(text: str, limit: int) -> str:
    """Return the text, or its beginning and an ellipsis if it has more than `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def well_formed(text: str) -> str:
    """Return the text in a form that can be encoded: surrogate pairs joined, each lone surrogate as U+FFFD.

    Some servers cut a character in two, and a `str` from JSON can hold such halves; HTTP clients then raise.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def json_values(text: str, openings: str) -> list[tuple[str, Any]]:
    """Find the JSON values that begin with one of the `openings` in a text, in the order written.

    Only the last 200 places where one could begin are tried.
    """
    decoder = json.JSONDecoder()
    found: list[tuple[str, Any]] = []
    parsed_to = 0
    for at in [at for at, char in enumerate(text) if char in openings][-MAX_JSON_OPENINGS:]:
        if at >= parsed_to:
            try:
                value, parsed_to = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                continue
            found.append((text[at:parsed_to], value))
    return found


def end_of_news(text: str) -> int | None:
    """Return where a text begins to repeat its own end, if that goes on for 1,000 characters; None if it does not.

    The parts that repeat have up to 200 characters. Code and data, such as a grid of zeros, may repeat for 8,000.
    """
    period = repeated_part(text)
    if period is None:
        return None
    if (not _WORD.search(text[-period:]) or text.count("```") % 2) and repeated_part(text, DATA_CHARS) is None:
        return None
    start, part = len(text) - REPEATING_CHARS, REPEATING_CHARS
    while part:
        while start >= part and text[start - part : start] == text[start - part + period : start + period]:
            start -= part
        part //= 10
    return start + period


def repeated_part(text: str, length: int = REPEATING_CHARS) -> int | None:
    """Return of how many characters the part is that repeats itself at the end of a text, or None."""
    tail = text[-length:]
    sample = length - 2 * MAX_PERIOD
    at = tail.rfind(tail[sample:], sample - MAX_PERIOD, -1) if len(tail) == length else -1
    period = sample - at
    return period if at >= 0 and tail[period:] == tail[:-period] else None
