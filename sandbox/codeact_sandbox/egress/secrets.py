"""The secrets of one sandbox: placeholders in requests become values, and values in answers become asterisks."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import ssl
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from codeact_sandbox.egress.authority import Authority
from codeact_sandbox.egress.masking import Mask, MaskedStream
from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.secrets import SecretValue

Headers = list[tuple[bytes, bytes]]
_NO_PART = {b"accept-encoding", b"range", b"if-range"}
"""Headers that are not passed on: a part of an answer, or a compressed one, could not be searched for a value."""


class Secrets:
    """Puts secrets into requests and takes them out of answers."""

    def __init__(self, values: Sequence[SecretValue]) -> None:
        self.placeholders = {each.name: f"placeholder-{secrets.token_hex(16)}" for each in values}
        """Variables for the code."""
        self.authority = Authority()
        self.mask = Mask(each.value for each in values)
        self._values = values
        self._trust: ssl.SSLContext | None = None

    def _for(self, host: str, port: int) -> dict[bytes, bytes]:
        """Return the values that a host may get, by their placeholders."""
        return {
            self.placeholders[each.name].encode(): each.value
            for each in self._values
            if any(entry.matches(host, port) for entry in each.entries)
        }

    def covers(self, host: str, port: int) -> bool:
        """Whether a host may get a value."""
        return bool(self._for(host, port))

    @property
    def trust(self) -> ssl.SSLContext:
        """How real servers are verified: as httpx does it."""
        if self._trust is None:
            # Its import takes long, and a sandbox without secrets does not need it.
            self._trust = import_module("httpx").create_ssl_context()
            self._trust.set_alpn_protocols(["http/1.1"])
        return self._trust

    def put_in(self, headers: Headers, host: str, port: int) -> Headers:
        """Return the headers of a request with the values that its host may get."""
        values = self._for(host, port)
        pattern = re.compile(b"|".join(values))
        passed = [(name, _replace(value, pattern, values)) for name, value in headers if name.lower() not in _NO_PART]
        return [*passed, (b"Accept-Encoding", b"identity")]


def _replace(header: bytes, pattern: re.Pattern[bytes], values: dict[bytes, bytes]) -> bytes:
    """Replace placeholders in a header's value; also in user and password, which are base64."""
    put_in = partial(pattern.sub, lambda match: values[match[0]])
    scheme, space, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return put_in(header)
    try:
        return scheme + space + base64.b64encode(put_in(base64.b64decode(encoded, validate=True)))
    except binascii.Error:
        return header


class MaskedAnswer:
    """The answer to one request, without values."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.body = MaskedStream(mask)

    def head(self, headers: Headers) -> Headers:
        """Return the headers of an answer."""
        if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in headers):
            raise Refused("the server compressed its answer, although it was asked not to: it can't be searched", 502)
        return [(self.mask.apply(name), self.mask.apply(value)) for name, value in headers]
