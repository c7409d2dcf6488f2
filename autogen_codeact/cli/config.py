"""Defaults of options: the file `~/.config/codeact/config.toml`, and the variables CODEACT_MODEL and CODEACT_BASE_URL."""

# ruff: noqa: PLC0415 - `codeact --help` needs no TOML

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from autogen_codeact.cli.model_servers import REPLAY, without_prefix

_NUMBER = (int, float)
_SETTINGS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "model": ("spec", str),
    "base_url": ("base_url", str),
    "api_key_env": ("api_key_env", str),
    "model_timeout": ("timeout_s", _NUMBER),
    "sandbox": ("kind", str),
    "timeout": ("timeout", _NUMBER),
    "option": ("others", dict),
    "budget": ("budget", dict),
}
"""Settings of the file, with the option that each is the default of, and its type."""


def config_file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder, "codeact", "config.toml")


def fill(options: dict[str, Any], is_given: Callable[[str], bool]) -> None:
    """Give options of a command that were not given their defaults."""
    if "kind" not in options or options.get("resume") or options.get("component"):
        return  # no sandbox is made, or one as before
    found = _read()
    own_model = is_given("spec")
    for name in ("budget", "others"):
        values = found.pop(name, None)
        if values and name in options:
            texts = _texts(values if name == "others" else _budget(values, options))
            options[name] = [*texts, *(options[name] or ())] or None
    if own_model:
        found.pop("api_key_env", None)
    for name, value in found.items():
        if name in options and not is_given(name):
            options[name] = value
    model = options.get("spec", "")
    has_own_server = model.startswith(REPLAY) or model.endswith(".json") or without_prefix(model)[0]
    if has_own_server and not is_given("base_url"):
        options["base_url"] = None


def _read() -> dict[str, Any]:
    found = {}
    for key, value in _read_file().items():
        name, kind = _SETTINGS.get(key, (None, object))
        if name is None:
            raise typer.BadParameter(f"{config_file()}: {key} is unknown; settings are {', '.join(_SETTINGS)}")
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = {str: "text in quotes", dict: "a table"}.get(kind, "a number")  # type: ignore[call-overload]
            raise typer.BadParameter(f"{config_file()}: {key} must be {wanted}")
        found[name] = value
    for name, variable in (("spec", "CODEACT_MODEL"), ("base_url", "CODEACT_BASE_URL")):
        if value := os.environ.get(variable, "").strip():
            found[name] = value
    return found


def _read_file() -> dict[str, Any]:
    import tomllib

    try:
        with config_file().open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise typer.BadParameter(f"{config_file()} can't be read: {error.strerror}") from None
    except ValueError as error:  # also text that is not UTF-8
        raise typer.BadParameter(f"{config_file()} is not TOML: {error}") from None


def _budget(limits: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that the agent of a command keeps; those of a whole batch are no defaults."""
    if "tasks" in options:
        return {}
    works_in_steps = options.get("act", True) or options.get("team")
    return {name: value for name, value in limits.items() if works_in_steps == (name != "retries")}


def _texts(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()]
