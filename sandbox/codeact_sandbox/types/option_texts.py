"""Options as texts, such as those of a command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from codeact_sandbox.types.keyword_model import did_you_mean
from codeact_sandbox.types.limits import Limits
from codeact_sandbox.types.option_parsing import parse_options
from codeact_sandbox.types.options import BubblewrapOptions, DockerOptions


def parse_texts(texts: Sequence[str]) -> dict[str, Any]:
    """Make arguments from texts such as those of a command line."""
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
