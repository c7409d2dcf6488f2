"""The secrets of one sandbox: placeholders in requests become values, and values in answers become asterisks."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import secrets
import ssl
from collections.abc import Iterable, Sequence
from importlib import import_module
from urllib.parse import quote, quote_plus

from codeact_sandbox.network.authority import Authority
from codeact_sandbox.network.channels import HEAD_LIMIT
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.secrets import SecretValue

Headers = list[tuple[bytes, bytes]]
# Headers that are not passed on: a part of an answer, or a compressed one, could not be searched for a value.
_NO_PART = {b"accept-encoding", b"range", b"if-range"}
MAX_HEAD = 2 * HEAD_LIMIT  # of a request with its values
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
    def __init__(self, values: Iterable[bytes]) -> None:
        found = sorted({form for value in values for form in forms(value)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, found)))
        self.most_held = len(found[0]) - 1  # bytes of a part of a form

    def apply(self, data: bytes) -> bytes:
        return self._pattern.sub(lambda match: b"*" * len(match[0]), data)

    def text(self, text: str) -> str:
        return self.apply(text.encode()).decode()


class MaskedStream:
    """Masks values in data that comes in pieces; only the end of the last line waits for the next piece."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._rest = b""
        self.found = False  # whether there was a value

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        passed, size = [], max(_SLICE, self._mask.most_held)
        for start in range(0, len(piece) or 1, size):  # no other thread runs while a part is searched
            found = self._rest + piece[start : start + size]
            data = self._mask.apply(found)
            self.found = self.found or data != found
            # As much whatever the values are, or the pieces would tell how one begins. No form has a line end in it.
            kept = 0 if last else min(self._mask.most_held, len(data) - 1 - data.rfind(b"\n"))
            passed.append(data[: len(data) - kept])
            self._rest = data[len(data) - kept :]
        return b"".join(passed)


class Secrets:
    def __init__(self, values: Sequence[SecretValue]) -> None:
        self.placeholders = {
            each.name: f"placeholder-{secrets.token_hex(16)}" for each in values
        }  # variables for the code
        self.authority = Authority()
        self.mask = Mask(each.value for each in values)
        self.guessed = False  # whether code has sent a value itself: then no host gets one any more
        self._values = values
        # How real servers are verified: as httpx does it.
        self.trust: ssl.SSLContext = import_module("httpx").create_ssl_context()
        self.trust.set_alpn_protocols(["http/1.1"])

    def _for(self, host: str, port: int) -> dict[bytes, bytes]:
        return {
            self.placeholders[each.name].encode(): each.value
            for each in self._values
            if any(entry.matches(host, port) for entry in each.entries)
        }

    def covers(self, host: str, port: int) -> bool:
        return bool(self._for(host, port))

    def check(self, *, guessed: bool) -> None:
        """Refuse a request in which code has sent a value itself.

        It does not know the value, so it guesses, and the mask of what a host sends back would say whether it is right.
        """
        self.guessed = self.guessed or guessed
        if self.guessed:
            raise Refused(
                "the code has sent the value of a secret itself, so the hosts of secrets can't be reached any more"
            )

    def put_in(self, headers: Headers, host: str, port: int) -> Headers:
        values = self._for(host, port)
        left = MAX_HEAD
        passed: Headers = []
        for name, value in headers:
            if name.lower() not in _NO_PART:
                passed.append((name, _replace(value, values, left)))
                left -= len(passed[-1][1])
        return [*passed, (b"Accept-Encoding", b"identity")]


def _replace(header: bytes, values: dict[bytes, bytes], most: int) -> bytes:
    """Replace placeholders in a header's value; also in user and password, which are base64."""

    def put_in(data: bytes) -> bytes:
        if len(data) + sum(data.count(each) * (len(value) - len(each)) for each, value in values.items()) > most:
            raise Refused(f"the request's head is longer than {MAX_HEAD:,} bytes with the secrets in it", 431)
        for each, value in values.items():
            data = data.replace(each, value)
        return data

    scheme, space, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return put_in(header)
    try:
        return scheme + space + base64.b64encode(put_in(base64.b64decode(encoded, validate=True)))
    except binascii.Error:
        return header


class MaskedAnswer:
    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.body = MaskedStream(mask)

    def head(self, headers: Headers) -> Headers:
        if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in headers):
            raise Refused("the server compressed its answer, although it was asked not to: it can't be searched", 502)
        return [(self.mask.apply(name), self.mask.apply(value)) for name, value in headers]
