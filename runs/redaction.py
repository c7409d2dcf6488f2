"""Removing secrets from what is written into a run's folder."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, get_args

from autogen_agentchat import messages
from pydantic import SecretStr

from autogen_codeact.runs.events import EVENTS
from codeact_sandbox.types.result import CallOutcome, Outcome, State

logger = logging.getLogger("autogen_codeact")

RedactText = Callable[[str], str]
"""Returns the text as it may be written."""

MESSAGES = (
    messages.TextMessage,
    messages.HandoffMessage,
    messages.CodeGenerationEvent,
    messages.ToolCallExecutionEvent,
)
"""Message types that together have the fields of all."""
HIDDEN = "[secret]"
WITHHELD = "[withheld, because the redact function failed: {kind}]"
MIN_SECRET = 8
MAX_DEPTH = 20
SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:(?:api)?key|token|secret|password|passwd|credentials?|auth|authorization)(?:$|[_-])", re.IGNORECASE
)

_FIXED = frozenset({"type", "time", "id", "created_at", "run", "agent", "request", "kind", "at", "outcome"})
_CONSTANTS = frozenset(value for kind in (Outcome, State, CallOutcome) for value in get_args(kind)) | {
    *("sandbox", "command_line", "plain", "bytes", "text", "json")
}
_HASH = re.compile("[0-9a-f]{64}")
_URL_PASSWORD = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")


class Redaction:
    """Removes known secrets, and what the caller's function removes, from everything that is written.

    Args:
        redact: The caller's function, called with each string; None for none.
        secrets: Texts that must not be written; those with fewer than 8 characters are ignored.
    """

    def __init__(self, redact: RedactText | None = None, secrets: Iterable[str] = ()) -> None:
        self._redact = redact
        self.has_function = redact is not None  # then strings have to pass it
        known = sorted({each for each in secrets if len(each.strip()) >= MIN_SECRET}, key=len, reverse=True)
        in_json = (json.dumps(each, ensure_ascii=False)[1:-1] for each in known)
        forms = [form for pair in zip(known, in_json, strict=True) for form in dict.fromkeys(pair)]
        self._known = [form.encode("utf-8", "replace") for form in forms]
        self._failed = False

    def line(self, data: bytes) -> bytes:
        """Return JSON without the known secrets."""
        # One by one: a regular expression takes a hundred times as long, and no thread runs meanwhile.
        for secret in self._known:
            data = data.replace(secret, HIDDEN.encode())
        return data

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known:
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

    def value(self, value: Any, fields: Collection[str] = ()) -> Any:
        """Return a JSON value without secrets, in keys too."""
        match value:
            case str():
                return value if _HASH.fullmatch(value) or (fields and value in _CONSTANTS) else self.text(value)
            case dict():
                return {
                    key if key in fields else self.text(key): self.value(each, fields) for key, each in value.items()
                }
            case list():
                return [self.value(each, fields) for each in value]
        return value

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event of a log without secrets, but with what makes it readable: names of fields, types, times, hashes."""
        fields = _field_names()
        made = {name: each if name in _FIXED else self.value(each, fields) for name, each in event.items()}
        if isinstance(made.get("message"), dict):
            made["message"] |= {name: each for name, each in event["message"].items() if name in _FIXED}
        return made

    def content(self, data: bytes) -> bytes:
        """Return the content of a file without secrets."""
        if not self._known and self._redact is None:
            return data
        try:
            return self.text(data.decode()).encode()
        except UnicodeDecodeError:
            # Each byte as a character, so that a secret in a binary file is found too.
            return self.text(data.decode("latin-1")).encode("latin-1", "replace")


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


@cache
def _field_names() -> frozenset[str]:
    """Return the names of fields of all events and messages, which a reader needs."""
    names: set[str] = set()
    waiting: list[Any] = [EVENTS.json_schema(), *(kind.model_json_schema() for kind in MESSAGES)]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, dict):
            properties = schema.get("properties")
            names |= properties.keys() if isinstance(properties, dict) else set()
            waiting += schema.values()
        elif isinstance(schema, list):
            waiting += schema
    return frozenset(names)
