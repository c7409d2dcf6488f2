"""Options of a sandbox from the arguments of those who make one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from codeact_sandbox.types.keyword_model import M, argument_error, check_names, did_you_mean
from codeact_sandbox.types.limits import Limits
from codeact_sandbox.types.options import (
    OPTIONS,
    WRONG_LIMITS,
    BubblewrapOptions,
    DockerOptions,
    SandboxOptions,
)

# What Python says about a value of another type than expected; our own sentences name the option.
INTERNAL = re.compile("object is not|has no attribute|expected str, bytes|unhashable type")


def parse_options(model: type[M], given: Mapping[str, Any], caller: type | None = None) -> M:
    """Make options from keyword arguments, with errors in the form that Python's own arguments have."""
    if isinstance(limits := given.get("limits"), dict):
        raise TypeError(WRONG_LIMITS.format(limits))
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise argument_error(error, caller or model, given, [*model.model_fields, *Limits.model_fields]) from None
    except (AttributeError, TypeError) as error:
        if not INTERNAL.search(str(error)):
            raise
        raise _wrong_type(model, given, caller or model) from error


def _wrong_type(model: type[BaseModel], given: Mapping[str, Any], caller: type) -> TypeError:
    """Return the error for the first option whose value is of a type that its validator does not expect."""
    for name, value in given.items():
        try:
            model.model_validate({name: value})
        except (AttributeError, TypeError):
            meaning = model.model_fields[name].description or ""
            return TypeError(f"{caller.__name__}({name}=…): {value!r:.50} is invalid. {meaning}")
        except ValueError:
            continue
    return TypeError(f"invalid arguments of {caller.__name__}: {', '.join(given)}")


def merge_options(options: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with others in their place; limits by name replace `limits`, and the other way round."""
    replaced = (
        set(Limits.model_fields) if "limits" in others else {"limits"} if Limits.model_fields.keys() & others else set()
    )
    return {**{name: value for name, value in options.items() if name not in replaced}, **others}


def only_for_bubblewrap(names: Collection[str]) -> bool:
    return bool(set(names) & OPTIONS["bubblewrap"].names() - OPTIONS["docker"].names())


def options_of(backend: str | SandboxOptions, given: Mapping[str, Any], caller: type) -> SandboxOptions:
    """Return the options of a sandbox from the arguments of `Sandbox` and `AsyncSandbox`, whose default mode is "session"."""
    if isinstance(backend, SandboxOptions):
        if given:
            raise TypeError(f"{', '.join(given)}: options are given either as {type(backend).__name__} or by name")
        return backend if "mode" in backend.model_fields_set else backend.model_copy(update={"mode": "session"})
    if backend not in ("auto", *OPTIONS):
        raise ValueError(f"backend must be 'auto', 'docker' or 'bubblewrap', not {backend!r}")
    if backend == "auto":
        # Otherwise the start finds out; Docker has all the others.
        backend = "bubblewrap" if only_for_bubblewrap(given) else "docker"
    check_names(caller, given, {kind: model.names() for kind, model in OPTIONS.items()}, backend)
    return parse_options(OPTIONS[backend], {"mode": "session", **given}, caller)


def parse_texts(texts: Sequence[str]) -> dict[str, Any]:
    fields = {**DockerOptions.model_fields, **BubblewrapOptions.model_fields, **Limits.model_fields}
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in fields:
            near = did_you_mean(name, fields) if equals else ""
            raise ValueError(
                f"{text!r} is not NAME=VALUE with the name of an option{near or ': ' + ', '.join(sorted(fields))}"
            )
        parsed = _parse_text(name, fields[name].annotation, value)
        if isinstance(parsed, list) and name in arguments:
            parsed = [*arguments[name], *parsed]
        arguments[name] = parsed
    return arguments


def _parse_text(name: str, kind: Any, text: str) -> Any:
    kinds = (kind, *get_args(kind))
    is_list = any(get_origin(each) is Sequence for each in kinds)
    if any(Path in (each, *get_args(each)) for each in kinds):
        text = os.path.expanduser(text)  # as a shell does with a word of its own
    if str in kinds and not is_list:
        return text
    try:
        value = json.loads(text)
        models = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]
        return parse_options(models[0], value) if models and isinstance(value, dict) else value
    except json.JSONDecodeError as error:
        if text.startswith(("{", '["')):
            raise ValueError(f"{name}={text!r} is not valid JSON: {error}") from None
        return [text] if is_list else text
