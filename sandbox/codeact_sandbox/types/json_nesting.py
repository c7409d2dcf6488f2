"""How deeply JSON is nested, before it is parsed."""

from __future__ import annotations

import re

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_nesting(data: bytes, limit: int) -> None:
    """Check, before it is parsed, that JSON is not nested too deeply.

    A parser would notice at the end of Python's stack. A finalizer of this program that the garbage collector calls there would
    fail too.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    # Removing strings costs most, and is needed only if they contain brackets.
    if _exceeds_depth(data, limit) and _exceeds_depth(_STRING.sub(b"", data), limit):
        raise ValueError(f"lists and objects are nested deeper than {limit}, or not closed")


def _exceeds_depth(data: bytes, limit: int) -> bool:
    brackets = data.translate(_ONE_KIND, _NO_BRACKETS)
    opening, closing = b"[" * (limit + 1), b"]" * (limit + 1)
    for _ in range(limit):
        if not brackets or opening in brackets or closing in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
