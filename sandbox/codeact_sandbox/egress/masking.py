"""Masking of secrets in what a server answers: each known form of a value is replaced by as many asterisks."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

_SLICE = 4096
_ESCAPE = re.compile(r"%[0-9A-F]{2}")


def forms(value: bytes) -> set[bytes]:
    """Return a value as it is, in one case, as JSON and HTML, hexadecimal, URL-encoded, and within base64 at any offset."""
    text = value.decode("ascii")
    as_json = json.dumps(text)[1:-1]
    found = {text, text.lower(), text.upper(), as_json, as_json.replace("/", "\\/"), value.hex(), value.hex().upper()}
    found |= {html.escape(text), html.escape(text, quote=False), html.escape(text).replace("+", "&#x2B;")}
    for special in ("<>&", "<>&'=", "\"&'+<>`"):  # what the encoders of Go, Gson and .NET escape
        for digits in ("\\u%04x", "\\u%04X"):
            found.add("".join(digits % ord(each) if each in special else json.dumps(each)[1:-1] for each in text))
    for encoded in (quote(text, safe=""), quote(text), quote_plus(text), "".join(f"%{byte:02X}" for byte in value)):
        found |= {encoded, _ESCAPE.sub(lambda match: match[0].lower(), encoded)}
    for before in range(3):
        # The first and the last characters depend on what is beside the value, too.
        encoded = base64.b64encode(bytes(before) + value).decode().rstrip("=")
        whole = encoded[(0, 2, 3)[before] : len(encoded) - ((before + len(value)) % 3 > 0)]
        found |= {whole, whole.replace("+", "-").replace("/", "_")}
    return {each.encode() for each in found}


class Mask:
    """Masks some values."""

    def __init__(self, values: Iterable[bytes]) -> None:
        found = sorted({form for value in values for form in forms(value)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, found)))
        self.most_held = len(found[0]) - 1  # bytes of a part of a form

    def apply(self, data: bytes) -> bytes:
        """Return data without the values; its length stays."""
        return self._pattern.sub(lambda match: b"*" * len(match[0]), data)

    def text(self, text: str) -> str:
        """Return a text without the values."""
        return self.apply(text.encode()).decode()


class MaskedStream:
    """Masks values in data that comes in pieces; only the end of the last line waits for the next piece."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._rest = b""

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Return what can be passed on."""
        passed, size = [], max(_SLICE, self._mask.most_held)
        for start in range(0, len(piece) or 1, size):  # no other thread runs while a part is searched
            data = self._mask.apply(self._rest + piece[start : start + size])
            # As much whatever the values are, or the pieces would tell how one begins. No form has a line end in it.
            kept = 0 if last else min(self._mask.most_held, len(data) - 1 - data.rfind(b"\n"))
            passed.append(data[: len(data) - kept])
            self._rest = data[len(data) - kept :]
        return b"".join(passed)
