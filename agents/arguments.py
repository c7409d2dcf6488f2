"""Checks of constructor arguments, so that a mistake is reported by the constructor and not in the first turn."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient
from pydantic import BaseModel

MAX_SHOWN_CHARS = 80


def check_parts(
    code_executor: CodeExecutor,
    model_client: ChatCompletionClient | None,
    *,
    approval_func: Callable[..., Any] | None,
    **lists: Iterable[Any] | None,
) -> None:
    """Check the arguments that all agents have."""
    if not _has(code_executor, "execute_code_blocks"):
        raise TypeError(
            f"code_executor must be an executor such as DockerCommandLineCodeExecutor(), not {_shown(code_executor)}."
        )
    if model_client is not None and not _has(model_client, "create"):
        raise TypeError(
            "model_client must be an AutoGen model client such as OpenAIChatCompletionClient(model='gpt-4o'), "
            f"not {_shown(model_client)}."
        )
    if approval_func is not None and not callable(approval_func):
        raise TypeError(f"approval_func must be a function, not {_shown(approval_func)}.")
    check_lists(**lists)


def check_lists(**lists: Iterable[Any] | None) -> None:
    """Check arguments that are lists, or None."""
    for name, value in lists.items():
        if value is not None and (isinstance(value, str | Mapping) or not isinstance(value, Iterable)):
            raise TypeError(f"{name} must be a list, not {_shown(value)}.")


def check_output_type(output_type: object, format_string: object) -> None:
    """Check the type that an answer must fit, and how it is shown."""
    if output_type is not None and not (isinstance(output_type, type) and issubclass(output_type, BaseModel)):
        raise TypeError(
            f"output_content_type must be a class derived from pydantic's BaseModel, not {_shown(output_type)}; "
            "for a single value, make one with one field."
        )
    if format_string is None:
        return
    if not isinstance(format_string, str):
        raise TypeError(f"output_content_type_format must be a string, not {_shown(format_string)}.")
    if output_type is None:
        raise ValueError("output_content_type_format needs an output_content_type, whose fields it shows.")
    _check_fields(output_type, format_string)


def _check_fields(output_type: type[BaseModel], format_string: str) -> None:
    known = {*output_type.model_fields, *output_type.model_computed_fields}
    try:
        used = [name for _, name, _, _ in string.Formatter().parse(format_string) if name is not None]
    except ValueError as error:
        raise ValueError(f"output_content_type_format is not a format string: {error}.") from None
    for name in used:
        field = re.split(r"[.\[]", name, maxsplit=1)[0]
        if field not in known and output_type.model_config.get("extra") != "allow":
            raise ValueError(
                f"output_content_type_format names the field {field!r}, and {output_type.__name__} has "
                f"{', '.join(sorted(known)) or 'none'}."
            )


def _has(part: object, method: str) -> bool:
    return not isinstance(part, type) and callable(getattr(part, method, None))


def _shown(value: object) -> str:
    """Describe a value, and show only short, plain ones: an object may hold a key."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and len(value) < MAX_SHOWN_CHARS)
    ):
        return repr(value)
    return f"a {type(value).__name__}"
