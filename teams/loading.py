"""Loading components, also from untrusted configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autogen_core import ComponentLoader, ComponentModel
from pydantic_core import from_json

from autogen_codeact.teams.untrusted import ALLOWED, REASONS, REFUSED, Part

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 50_000
MAX_COMPONENTS = 100
MAX_SHOWN = 20
MAX_SHOWN_CHARS = 80
_SHORT_NAMES: dict[str, str] = dict.fromkeys(
    ("OpenAIChatCompletionClient", "openai_chat_completion_client"),
    "autogen_ext.models.openai.OpenAIChatCompletionClient",
)
"""AutoGen's abbreviations."""


class RefusedConfigError(ValueError):
    """A configuration contains what an untrusted one may not contain; nothing of it was loaded.

    Args:
        refused: The refused items: the path in the JSON, and the reason.
    """

    def __init__(self, refused: list[str]) -> None:
        self.refused = tuple(refused)
        shown = "\n".join(f"- {each}" for each in refused[:MAX_SHOWN])
        more = f"\n- and {len(refused) - MAX_SHOWN} more" if len(refused) > MAX_SHOWN else ""
        super().__init__(
            f"This untrusted configuration was not loaded, because it contains:\n{shown}{more}\n"
            "Remove these, or read the configuration, and load it with trusted=True (without --untrusted) if you accept them."
        )


def load_component(
    source: str | bytes | Path | Mapping[str, Any] | ComponentModel,
    *,
    trusted: bool = False,
    allow_keys: bool = False,
    work_dir: Path | str | None = None,
    expected: type[Any] = object,
) -> Any:
    """Load an agent, a team, an executor or another component from its configuration.

    A trusted configuration is loaded as AutoGen does it, which can run code on this machine. An untrusted one may contain
    only components and fields of an allow-list (docs/security.md), and is checked as a whole before anything is imported.

    Args:
        source: JSON text, the path of a JSON file, the parsed JSON, or a result of `dump_component()`.
        trusted: Whether the configuration comes from somebody who may run code on this machine. Default False.
        allow_keys: Whether models of an untrusted configuration may use this process's keys at their vendor's own server,
            for example OPENAI_API_KEY. Default False.
        work_dir: The `work_dir` of each executor of an untrusted configuration. Default None: a temporary folder each.
        expected: Class that the component must be an instance of. Default: any.

    Returns:
        The component.

    Raises:
        RefusedConfigError: The configuration is untrusted and contains what is not allowed.
        ValueError: It is not a component's configuration.
        TypeError: The component is not of the expected class.
        NotImplementedError: It was dumped by a version that the component's class can't read.
        OSError: The file can't be read.
    """
    if trusted:
        if work_dir is not None:
            raise ValueError("work_dir= is for untrusted configurations; a trusted one contains its own.")
        model = _read(source) if isinstance(source, str | bytes | Path) else source
    else:
        model = check_untrusted(source, allow_keys=allow_keys, work_dir=work_dir)
    if not isinstance(model, ComponentModel):
        model = ComponentModel.model_validate(model)
    return ComponentLoader.load_component(model, expected=expected)


def check_untrusted(
    source: str | bytes | Path | Mapping[str, Any] | ComponentModel,
    *,
    allow_keys: bool = False,
    work_dir: Path | str | None = None,
) -> dict[str, Any]:
    """Check an untrusted configuration without loading anything."""
    if isinstance(source, ComponentModel):
        source = source.model_dump()
    data = _copy(_read(source, MAX_BYTES) if isinstance(source, str | bytes | Path) else source)
    check = _Check(allow_keys, str(work_dir) if work_dir is not None else None)
    check.component(data, "", "")
    if check.refused:
        raise RefusedConfigError(check.refused)
    checked: dict[str, Any] = data
    return checked


def _read(source: str | bytes | Path, limit: int | None = None) -> Any:
    name = "The configuration"
    if isinstance(source, Path):
        name = str(source)
        with source.open("rb") as file:
            source = file.read(limit + 1 if limit is not None else -1)
    if limit is not None and len(source) > limit:
        raise ValueError(f"The configuration is larger than the {limit:,} bytes that an untrusted one may have.")
    text = source if isinstance(source, str) else source.removeprefix(b"\xef\xbb\xbf")
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON ({error}). Give the text, or a pathlib.Path of a file.") from None


def _copy(value: Any, depth: int = 0, room: list[int] | None = None) -> Any:
    """Copy JSON values: what is loaded is what was checked, whatever the caller's objects do."""
    room = room or [MAX_VALUES, MAX_BYTES]  # values and characters that are left
    room[0] -= 1
    if depth > MAX_DEPTH:
        raise ValueError(f"The configuration is nested more than {MAX_DEPTH} levels deep.")
    if type(value) is str:
        room[1] -= len(value)
    if min(room) < 0:
        raise ValueError("The configuration is larger than an untrusted one may be.")
    if value is None or type(value) in (bool, str) or (type(value) is int and value.bit_length() < 64):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise ValueError("The configuration is not JSON: a key is not a string.")
        return {key: _copy(item, depth + 1, room) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item, depth + 1, room) for item in value]
    raise ValueError(f"The configuration is not JSON: it contains a {type(value).__name__}.")


class _Check:
    def __init__(self, allow_keys: bool, work_dir: str | None) -> None:
        self.refused: list[str] = []
        self._allow_keys = allow_keys
        self._work_dir = work_dir
        self._components = 0

    def component(self, data: Any, place: str, kind: str) -> None:
        """Check a component, and write its full name and `work_dir` into it."""
        self._components += 1
        if self._components == MAX_COMPONENTS + 1:
            self._refuse(place, f"is one of more than {MAX_COMPONENTS} components")
        if self._components > MAX_COMPONENTS:
            return
        if not isinstance(data, dict) or not isinstance(data.get("provider"), str):
            self._refuse(place, "is not a component: an object with `provider` and `config`")
            return
        provider = str(_SHORT_NAMES.get(data["provider"], data["provider"]))
        data["provider"] = provider
        known = ALLOWED.get(provider)
        name = _shown(provider.rpartition(".")[2])
        if known is None:
            reason = "is not on the list of components that an untrusted configuration may contain"
            self._refuse(place, f"{name} {REFUSED.get(provider, f'({_shown(provider)}) {reason}')}")
            return
        if kind and known.kind not in kind.split(" or "):
            self._refuse(place, f"{name} is not a component of the right kind; here it must be: {kind}")
            return
        if known.variable is not None and not self._allow_keys:
            self._refuse(
                place, f"{name} reads {known.variable} of this process's environment; allow_keys=True permits it"
            )
        config = data.get("config")
        if not isinstance(config, dict):
            self._refuse(_join(place, "config"), "is not an object")
            return
        for field, value in config.items():
            self._field(known.fields.get(field), field, value, _join(place, f"config{_key(field)}"))
        if self._work_dir is not None and known.kind == "code_executor":
            config["work_dir"] = self._work_dir

    def _field(self, rule: Any, field: str, value: Any, place: str) -> None:
        if value is None or value in ([], {}):
            return
        if isinstance(rule, Part):
            many = value if rule.many and isinstance(value, list) else None
            for index, part in enumerate(many or [value]):
                self.component(part, place if many is None else f"{place}[{index}]", rule.kind)
        elif rule is None:
            self._refuse(place, REASONS.get(field, "is not a field that an untrusted configuration may set"))
        elif (reason := rule(value)) is not None:
            self._refuse(place, reason)

    def _refuse(self, place: str, reason: str) -> None:
        self.refused.append(f"{place or 'the configuration'}: {reason}")


def _join(place: str, rest: str) -> str:
    return f"{place}.{rest}" if place else rest


def _key(name: str) -> str:
    return (
        f".{name}" if name.isidentifier() and name.isascii() and len(name) <= MAX_SHOWN_CHARS else f"[{_shown(name)!r}]"
    )


def _shown(text: str) -> str:
    safe = ascii(text)[1:-1]
    return safe if len(safe) <= MAX_SHOWN_CHARS else safe[:MAX_SHOWN_CHARS] + "..."
