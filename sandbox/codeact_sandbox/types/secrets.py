"""Secrets that code can use and never sees: the host's proxy puts them into requests to the hosts that they are for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from codeact_sandbox.types.allowed_domains import DEFAULT_PORTS, Entry, parse_entry
from codeact_sandbox.types.environment import check_names

MIN_CHARS, MAX_CHARS = 8, 8192
MAX_SECRETS = 100
MAX_ALL_CHARS = 65_536  # all values are searched in each answer
_TLS_PORTS = (443,)


class Secret(BaseModel):
    """A value that the code does not get: it gets a placeholder, which the host replaces in requests.

    The value is put into the headers of HTTPS requests to `hosts` only. The code can reach these hosts without `allow_domains`.

    Args:
        env: Name of the host's environment variable that has the value: 8 to 8,192 printable ASCII characters.
        hosts: The hosts that may get it, as in `allow_domains`: "api.example.com" (port 443), "*.example.org:8443".

    Raises:
        ValueError: A host is malformed, or there is none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    if TYPE_CHECKING:

        def __init__(self, *, env: str, hosts: Sequence[str]) -> None: ...

    env: str
    hosts: tuple[str, ...]

    @model_validator(mode="before")
    @classmethod
    def _has_no_value(cls, fields: Any) -> Any:
        if isinstance(fields, Mapping) and "value" in fields:
            raise ValueError(
                "a secret has no value=: put the value into a variable of the host, and give its name as env="
            )
        return fields

    @field_validator("env")
    @classmethod
    def _is_name(cls, env: str) -> str:
        check_names([env], "env=")
        return env

    @field_validator("hosts", mode="before")
    @classmethod
    def _are_hosts(cls, hosts: Any) -> Any:
        if isinstance(hosts, str) or not hosts:
            raise ValueError("hosts= of a secret is a list of the hosts that may get it, such as ['api.example.com']")
        for text in hosts:
            parse_entry(text, "hosts= of a secret")
        return tuple(hosts)

    @property
    def entries(self) -> list[Entry]:
        """Its hosts, on port 443 where none is named."""
        entries = [parse_entry(text) for text in self.hosts]
        return [replace(each, ports=_TLS_PORTS) if each.ports == DEFAULT_PORTS else each for each in entries]


@dataclass(frozen=True)
class SecretValue:
    name: str  # of the code's environment variable that has the placeholder
    value: bytes
    entries: Sequence[Entry]  # the hosts that may get it

    def __repr__(self) -> str:
        return f"<SecretValue {self.name}>"


def parse_secrets(value: Any) -> dict[str, Secret]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError("secrets= is a mapping such as {'API_KEY': Secret(env='API_KEY', hosts=['api.example.com'])}")
    if len(value) > MAX_SECRETS:
        raise ValueError(f"secrets= has {len(value):,} entries: give at most {MAX_SECRETS}")
    check_names(value, "secrets=")
    return {name: _parse(name, each) for name, each in value.items()}


def _parse(name: str, value: Any) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, Mapping):  # not shown: it may be the value itself
        raise TypeError(
            f"secrets= has no Secret(env=..., hosts=[...]) for {name}: give the name of a variable, no value"
        )
    try:
        return Secret.model_validate(dict(value))
    except ValidationError as error:
        raise ValueError(
            f"secrets= has a malformed entry {name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
        ) from None


def dump_secrets(secrets: Mapping[str, Secret]) -> dict[str, Any]:
    return {name: each.model_dump(mode="json") for name, each in secrets.items()}


def look_up(secrets: Mapping[str, Secret], host: Mapping[str, str] | None = None) -> list[SecretValue]:
    """Look up the values, at the start of a sandbox.

    Raises:
        ValueError: A variable is not set, its value can't be a header's or is a part of another's, or they are too long.
    """
    variables = os.environ if host is None else host
    found = [
        SecretValue(name, _checked(name, each.env, variables.get(each.env)), each.entries)
        for name, each in secrets.items()
    ]
    for one, other in permutations(found, 2):
        if one.value != other.value and one.value in other.value:
            raise ValueError(
                f"The value of the secret {one.name} is a part of that of {other.name}, so answers could show the rest: leave "
                "one of them out."
            )
    if sum(len(each.value) for each in found) > MAX_ALL_CHARS:
        raise ValueError(f"All secrets together have more than {MAX_ALL_CHARS:,} characters: give fewer.")
    return found


def _checked(name: str, variable: str, value: str | None) -> bytes:
    """Check a value; no message shows it."""
    if not value:
        state = "is not set" if value is None else "is empty"
        raise ValueError(
            f"The secret {name} needs the host's variable {variable}, which {state}: set it, or leave it out."
        )
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ValueError(
            f"The value of {variable} can't be sent in a header: it has a line break, spaces at an end, or other characters "
            "than printable ASCII. Correct the variable, for example without the line break at its end."
        )
    if not MIN_CHARS <= len(value) <= MAX_CHARS:
        raise ValueError(
            f"The value of {variable} has {len(value):,} characters: a secret has {MIN_CHARS} to {MAX_CHARS:,}, so that it can "
            "be found in answers."
        )
    return value.encode()
