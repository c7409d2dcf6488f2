"""Numbers in the text of an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

MAX_LOOKED_AT = 10_000
"""Characters at the end of a text in which its last number has to be."""
MAX_DIGITS = 1000
MAX_EXPONENT = 400
_SPACES = "\u00a0\u2007\u2009\u202f"
_INTEGER = rf"\d{{1,3}}(?:[,_{_SPACES}]\d{{3}})+(?!\d)|\d{{1,3}}(?:\{{,\}}\d{{3}})+(?!\d)|\d+(?:_\d+)*"
_EXPONENT = r"[eE][-+]?\d+(?!\w)|\s?(?:×|\\times|\\cdot|·)\s?10(?:\^|\*\*)(?:\{[-+]?\d+\}|[-+]?\d+)"
_NUMBER = re.compile(
    rf"""
    (?<![\w./^]) (?P<sign>(?<![)\]}}])[-+])? (?:\\?[$€£¥])?
    (?: \\[dt]?frac\{{\s*(?P<top>-?\d{{1,{MAX_DIGITS}}})\s*\}}\{{\s*(?P<bottom>\d{{1,{MAX_DIGITS}}})\s*\}}
      | (?P<over>\d{{1,{MAX_DIGITS}}})\s?/\s?(?P<under>\d{{1,{MAX_DIGITS}}})(?![\d/.])
      | (?P<whole>{_INTEGER})? (?P<part>\.\d+)? (?P<exponent>{_EXPONENT})? (?P<percent>\s?\\?%)?
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Number:
    """A number as it was written; the value of "45%" is 45."""

    text: str
    value: Fraction
    percent: bool = False

    def is_near(self, other: Number, absolute: float, relative: float) -> bool:
        """Return whether another number is close enough. If one of them alone is a percentage, 45% is 45 and 0.45."""
        values = [other.value]
        if other.percent and not self.percent:
            values.append(other.value / 100)
        if self.percent and not other.percent:
            values.append(other.value * 100)
        allowed = max(Fraction(absolute), Fraction(relative) * abs(self.value))
        return any(abs(self.value - value) <= allowed for value in values)


def find_number(text: str) -> Number | None:
    r"""Return the last number in a text, or that in its last `\boxed{…}`."""
    box = _last_box(text)
    if box is not None and (number := _last_number(box)) is not None:
        return number
    return _last_number(text)


def to_number(value: Any) -> Number | None:
    """Return an expected value as a number, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _last_number(str(value))
    return find_number(value) if isinstance(value, str) else None


def _last_box(text: str) -> str | None:
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    start, depth = text.index("{", start), 0
    for place in range(start, min(len(text), start + MAX_LOOKED_AT)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
    return None


def _last_number(text: str) -> Number | None:
    found = None
    for match in _NUMBER.finditer(text[-MAX_LOOKED_AT:].replace("\u2212", "-")):
        if match.group("top") or match.group("over") or match.group("whole") or match.group("part"):
            found = _number(match) or found
    return found


def _number(match: re.Match[str]) -> Number | None:
    groups = match.groupdict()
    sign = -1 if groups["sign"] == "-" else 1
    text = match.group().strip()
    top, bottom = (groups["top"] or groups["over"]), (groups["bottom"] or groups["under"])
    if bottom is not None:
        if int(bottom) == 0:
            return None
        return Number(text, sign * Fraction(int(top), int(bottom)))
    digits = re.sub(r"\D", "", groups["whole"] or "0") + (groups["part"] or "")
    exponent = re.search(r"([-+]?\d+)\}?$", groups["exponent"]) if groups["exponent"] else None
    power = exponent.group(1) if exponent else "0"
    if len(digits) > MAX_DIGITS or len(power) > 6 or abs(int(power)) > MAX_EXPONENT:
        return None
    try:
        value = Fraction(Decimal(f"{digits}E{power}"))
    except InvalidOperation:
        return None
    return Number(text, sign * value, groups["percent"] is not None)
