"""Removing secrets from what is written into a run's folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import SecretStr

HIDDEN = "[secret]"
MIN_SECRET = 8
MAX_DEPTH = 20
SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:(?:api)?key|token|secret|password|passwd|credentials?|auth|authorization)(?:$|[_-])", re.IGNORECASE
)

_URL_PASSWORD = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")


class Redaction:
    """Removes known secrets from everything that is written.

    Args:
        secrets: Texts that must not be written; those with fewer than 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({each for each in secrets if len(each.strip()) >= MIN_SECRET}, key=len, reverse=True)
        in_json = (json.dumps(each, ensure_ascii=False)[1:-1] for each in known)
        forms = [form for pair in zip(known, in_json, strict=True) for form in dict.fromkeys(pair)]
        self._known = [form.encode("utf-8", "replace") for form in forms]

    def content(self, data: bytes) -> bytes:
        """Return JSON, or the content of a file, without the known secrets."""
        # One by one: a regular expression takes a hundred times as long, and no thread runs meanwhile.
        for secret in self._known:
            data = data.replace(secret, HIDDEN.encode())
        return data

    def value(self, value: Any) -> Any:
        """Return a JSON value as it is written."""
        if not self._known:
            return value
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return json.loads(self.content(text).decode("utf-8", "surrogatepass"))


def known_secrets(*configurations: object) -> set[str]:
    """Return the secrets of this process: those in configurations, and environment variables with names such as `API_KEY`."""
    found: set[str] = set()
    for each in (dict(os.environ), *configurations):
        _collect(each, found, named=False, depth=0)
    return {each for each in found if len(each.strip()) >= MIN_SECRET}


def _collect(value: object, found: set[str], *, named: bool, depth: int) -> None:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, SecretStr):
        found.add(value.get_secret_value())
    elif isinstance(value, str):
        found.update(_URL_PASSWORD.findall(value))
        if named:
            found.add(value)
            found.add(value.removeprefix("Bearer "))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            secret = named or bool(SECRET_NAME.search(str(name).replace("-", "_")))
            _collect(each, found, named=secret, depth=depth + 1)
    elif isinstance(value, list | tuple | set):
        for each in value:
            _collect(each, found, named=named, depth=depth + 1)
    elif hasattr(value, "model_fields_set"):
        _collect(dict(vars(value)), found, named=named, depth=depth + 1)
