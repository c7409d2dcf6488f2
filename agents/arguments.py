"""Checks of constructor arguments, so that a mistake is reported by the constructor and not in the first turn."""

from __future__ import annotations

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
    for name, value in lists.items():
        if value is not None and (isinstance(value, str | Mapping) or not isinstance(value, Iterable)):
            raise TypeError(f"{name} must be a list, not {_shown(value)}.")


def check_output_type(output_type: object) -> None:
    """Check the type that an answer must fit."""
    if output_type is not None and not (isinstance(output_type, type) and issubclass(output_type, BaseModel)):
        raise TypeError(
            f"output_content_type must be a class derived from pydantic's BaseModel, not {_shown(output_type)}; "
            "for a single value, make one with one field."
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
