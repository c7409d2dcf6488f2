"""Comparing answers, here or in another process; without other modules of this package, so that the process starts quickly."""

from __future__ import annotations

import json
import re
import resource
import sys
from contextlib import suppress
from typing import Any

from pydantic_core import from_json, to_json

MEMORY = 1024 * 1024 * 1024
MAX_SHOWN = 200
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,}).*$", re.MULTILINE)
_HUGE = re.compile(rb"\d[eE]\+?\d{3}|\d{300}").search

Found = tuple[bool | None, str]
"""Whether the answer is right, None if the check itself failed; and why not, or what failed."""


def main() -> None:
    """Compare the answer in standard input with what its first line says, and print what was found."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    header, _, answer = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").partition("\n")
    kind, expected = json.loads(header)
    sys.stdout.write(json.dumps(compare(kind, expected, answer)))


def compare(kind: str, expected: Any, answer: str) -> Found:
    """Compare an answer with the expected one."""
    return {"exact": _check_exact, "json": _check_json, "regex": _check_pattern}[kind](expected, answer)


def _check_exact(expected: Any, answer: str) -> Found:
    text = as_text(expected)
    return _normal(answer) == _normal(text), f"expected {shown(text)}, not {shown(answer)}"


def _check_pattern(pattern: str, answer: str) -> Found:
    if (problem := pattern_problem(pattern)) is not None:
        return None, problem
    return re.search(pattern, answer) is not None, f"the answer does not match {pattern[:MAX_SHOWN]!r}"


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern is not valid, or None. This can take seconds."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"check: the regex is not valid: {shown(str(error))}"
    return None


def _check_json(expected: Any, answer: str) -> Found:
    if isinstance(expected, str):
        with suppress(ValueError):  # else it is a text as a JSON value
            expected = parse_json(expected)
    for text in _json_texts(answer):
        try:
            value = parse_json(text)
        except ValueError:
            continue
        try:
            passed = _same(expected, value)
        except RecursionError:
            return False, "it is nested too deeply"
        return passed, f"expected {shown(as_text(expected))}, not {shown(text)}"
    return False, "there is no JSON in the answer"


def _json_texts(answer: str) -> list[str]:
    """Return the texts that may be the JSON value, the likeliest first: all of it, the last code block, what is in brackets."""
    texts = [answer, *reversed(_FENCE.split(answer)[1::2][-10:])]
    places = sorted((answer.find(opening), answer.rfind(closing)) for opening, closing in ("{}", "[]"))
    texts += (answer[start : end + 1] for start, end in places if 0 <= start < end)
    return [text.strip() for text in texts]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def as_text(value: Any) -> str:
    """Return a value as text: JSON, if it is not text."""
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except ValueError:
        return repr(value)


def shown(text: str) -> str:
    """Return the beginning of a text, quoted."""
    text = text.strip()
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text."""
    # A lone surrogate becomes bytes that the parser refuses with a ValueError; of text it would raise a TypeError.
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    value = from_json(data, allow_inf_nan=False, cache_strings="keys")
    # The parser makes infinity of 1e999.
    if _HUGE(data) and _has_infinity(value):
        raise ValueError("it has a number that is too large")
    return value


def _has_infinity(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_infinity, value.values()))
    if isinstance(value, list):
        return any(map(_has_infinity, value))
    return isinstance(value, float) and value in (float("inf"), float("-inf"))
