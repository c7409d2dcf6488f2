"""Removing secrets from what is written into a run's folder."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import SecretStr

logger = logging.getLogger("autogen_codeact")

RedactText = Callable[[str], str]
"""Returns the text as it may be written."""

HIDDEN = "[secret]"
WITHHELD = "[withheld, because the redact function failed: {kind}]"
MIN_SECRET = 8
MAX_DEPTH = 20
SECRET_NAME = re.compile(
    r"(?:^|_)(?:key|token|secret|password|passwd|credentials?|auth|authorization)(?:$|_)", re.IGNORECASE
)

_URL_PASSWORD = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")


class Redaction:
    """Removes known secrets, and what the caller's function removes, from everything that is written.

    Args:
        redact: The caller's function, called with each string; None for none.
        secrets: Texts that must not be written; those with fewer than 8 characters are ignored.
    """

    def __init__(self, redact: RedactText | None = None, secrets: Iterable[str] = ()) -> None:
        self._redact = redact
        known = sorted({each for each in secrets if len(each.strip()) >= MIN_SECRET}, key=len, reverse=True)
        forms = [form for each in known for form in dict.fromkeys((each, _in_json(each)))]
        self._known = re.compile(b"|".join(re.escape(form.encode("utf-8", "replace")) for form in forms))
        self._any = bool(forms)
        self._failed = False

    @property
    def has_function(self) -> bool:
        """Whether strings have to pass the caller's function."""
        return self._redact is not None

    def line(self, data: bytes) -> bytes:
        """Return JSON without the known secrets."""
        return self._known.sub(HIDDEN.encode(), data) if self._any else data

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._any:
            text = self.line(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
        if self._redact is None:
            return text
        try:
            redacted = self._redact(text)
            if not isinstance(redacted, str):
                raise TypeError(f"redact must return a str, not {type(redacted).__name__}")  # noqa: TRY301
        except Exception as error:
            if not self._failed:
                logger.exception("redact failed: what it failed on is not written into the run's folder")
            self._failed = True
            return WITHHELD.format(kind=type(error).__name__)
        return redacted

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets, in keys too."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(key): self.value(each) for key, each in value.items()}
            case list():
                return [self.value(each) for each in value]
        return value

    def content(self, data: bytes) -> bytes:
        """Return the content of a file without secrets."""
        if not self._any and self._redact is None:
            return data
        try:
            return self.text(data.decode()).encode()
        except UnicodeDecodeError:
            # Each byte as a character, so that a secret in a binary file is found too.
            return self.text(data.decode("latin-1")).encode("latin-1", "replace")


def known_secrets(*configurations: object) -> set[str]:
    """Return the secrets of this process: those in configurations, and environment variables with names such as `API_KEY`.

    Args:
        configurations: Models, mappings and sequences; a `SecretStr` in them is a secret, and so is a text under such a name.
    """
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


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
