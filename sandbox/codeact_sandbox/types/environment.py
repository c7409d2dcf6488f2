"""Environment variables for the sandbox. A config contains references to them, never values.

{"MODE": "fast"}              a literal value; written as "${MODE}"
{"KEY": "${API_KEY}"}         the host's variable API_KEY
{"KEY": "${API_KEY:-none}"}   the same, with a value for hosts on which it is unset or empty; written as "${API_KEY}"
["API_KEY"]                   the host's variable of the same name
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Environment = Mapping[str, str]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)

_LOADER = (
    "the interpreter of Python blocks is already running then. Set it inside the code, for the command that needs it."
)
_REFUSED = {
    "LD_": _LOADER,
    "GCONV_PATH": _LOADER,
    "GLIBC_TUNABLES": _LOADER,
    "CODEACT_": "names that begin with CODEACT_ are this package's own. Use another name.",
}
# Variables that the interpreter reads only at its start. It starts with no other variables of Python. Each value is checked: it
# must not be able to name a folder that code can write to.
# A word that is accepted, and the bounds of a number.
_INTERPRETER = {
    "PYTHONHASHSEED": ("random", 0, 2**32 - 1),
    "PYTHONINTMAXSTRDIGITS": ("0", 640, 2**31 - 1),
    "PYTHONOPTIMIZE": ("", 0, 2),
    "PYTHONUTF8": ("", 0, 1),
}
# Linux starts no program with a longer variable.
_MAX_BYTES = 128 * 1024
_MAX_TOTAL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class EnvironmentValue:
    """One variable: a literal, or a reference to a variable of the host. Its value is never shown."""

    name: str  # name in the sandbox
    host_name: str | None  # name on the host, or None for a literal
    value: str | None  # the literal, or the default of a reference, or None

    @property
    def reference(self) -> str:
        """What a config contains instead of the value."""
        return f"${{{self.host_name or self.name}}}"

    def resolve(self, host: Mapping[str, str]) -> str | None:
        """Return the value, or None if the host does not have it and there is no default."""
        if self.host_name is None:
            return self.value
        found = host.get(self.host_name)
        return found if found or self.value is None else self.value

    def __repr__(self) -> str:
        kind = "a literal" if self.host_name is None else self.reference
        return f"<EnvironmentValue {self.name}: {kind}>"


def parse_environment(environment: Mapping[str, str] | Sequence[str] | None) -> dict[str, EnvironmentValue]:
    if environment is None:
        return {}
    if isinstance(environment, str):
        raise TypeError("`environment` is one string; give a list of names such as ['API_KEY'], or a mapping.")
    if isinstance(environment, Mapping):
        check_names(environment)
        return {name: _parse_value(name, value) for name, value in environment.items()}
    check_names(environment)
    return {name: EnvironmentValue(name, name, None) for name in environment}


def resolve(environment: Mapping[str, EnvironmentValue], host: Mapping[str, str] | None = None) -> dict[str, str]:
    host = os.environ if host is None else host
    values: dict[str, str] = {}
    missing: list[str] = []
    for name, entry in environment.items():
        value = entry.resolve(host)
        if value is None:
            missing.append(entry.host_name or name)
        else:
            values[name] = _checked_value(entry.host_name or name, value, name)
    if missing:
        names = ", ".join(missing)
        raise ValueError(
            f"The sandbox's environment refers to variables that are not set on this host: {names}. "
            f"Set them (`export {missing[0]}=...`), give a default (`${{{missing[0]}:-...}}`), or remove them."
        )
    total = sum(len(f"{name}={value}".encode()) for name, value in values.items())
    if total > _MAX_TOTAL_BYTES:
        raise ValueError(
            f"The variables of `environment` take {total:,} bytes together, and {_MAX_TOTAL_BYTES:,} at most can be set."
        )
    return values


def interpreter_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that affect Python blocks only if their interpreter starts with them."""
    return {name: value for name, value in values.items() if name in _INTERPRETER and value}


def dump(environment: Mapping[str, EnvironmentValue]) -> dict[str, str]:
    """Return the variables for a config: references by name, without values and defaults, for `parse_environment`."""
    return {name: entry.reference for name, entry in environment.items()}


def _parse_value(name: str, value: str) -> EnvironmentValue:
    if not isinstance(value, str):
        kind = "None" if value is None else type(value).__name__
        raise TypeError(f"environment: the value of {name} must be a string, not {kind}.")
    reference = _REFERENCE.fullmatch(value)
    _checked_value(name, value, name if reference is None else None)
    if reference is not None:
        return EnvironmentValue(name, reference[1], reference[2])
    if "${" in value:
        raise ValueError(
            f"The value of {name} has `${{` in it but is not one whole reference such as `${{API_KEY}}`. "
            f"Set a variable of the host to the whole text and refer to that."
        )
    return EnvironmentValue(name, None, value)


def check_names(names: Iterable[str], option: str = "`environment` (--env)") -> None:
    for position, name in enumerate(names, start=1):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            # Not shown: it may be a key that was passed instead of its name.
            raise ValueError(
                f"Entry {position} of {option} is not the name of a variable; use letters, digits and underscores."
            )
        for refused, reason in _REFUSED.items():
            if name == refused or (refused.endswith("_") and name.startswith(refused)):
                raise ValueError(f"The environment variable {name} can't be set for the whole sandbox: {reason}")


def _checked_value(name: str, value: str, variable: str | None) -> str:
    """Check a value; `name` is for messages to the user, `variable` is its name in the sandbox, if known."""
    if "\0" in value:
        raise ValueError(f"The value of {name} has a NUL character in it; no environment can hold that.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"The value of {name} is not valid UTF-8 text; encode it, for example as base64.") from None
    if size + len(variable or name) + 2 > _MAX_BYTES:
        raise ValueError(
            f"The value of {name} has {size:,} bytes, more than Linux can give to a program; send a file instead."
        )
    word, least, most = _INTERPRETER.get(variable or "", (value, 0, 0))
    number = int(value) if value.isascii() and value.isdigit() and len(value) <= len(str(most)) else -1
    if value not in ("", word) and not least <= number <= most:
        accepted = f"{word} or {least} to {most}" if word else f"{least} to {most}"
        raise ValueError(f"Python can't start with this value of {name}; give {accepted}.")
    return value
