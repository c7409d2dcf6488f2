"""Checks of constructor arguments: a mistake is reported where it was made, not in the first turn."""

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
    """Check the arguments that all agents have.

    Args:
        code_executor: Runs code.
        model_client: Calls a model, or None.
        approval_func: Can be called, or None.
        lists: Arguments that are lists, by their names.

    Raises:
        TypeError: One of them is something else.
    """
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
    """Check arguments that are lists, or None.

    Args:
        lists: The arguments, by their names.

    Raises:
        TypeError: One of them is something else.
    """
    for name, given in lists.items():
        if given is not None and (isinstance(given, str | Mapping) or not isinstance(given, Iterable)):
            raise TypeError(f"{name} must be a list, not {_shown(given)}.")


def check_output_type(output_type: object) -> None:
    """Check the type that an answer must fit.

    Raises:
        TypeError: It is no pydantic model.
    """
    if output_type is not None and not (isinstance(output_type, type) and issubclass(output_type, BaseModel)):
        raise TypeError(
            f"output_type must be a class derived from pydantic's BaseModel, not {_shown(output_type)}; "
            "for a single value, make one with one field."
        )


def _has(part: object, method: str) -> bool:
    return not isinstance(part, type) and callable(getattr(part, method, None))


def _shown(given: object) -> str:
    """Describe a value, and show only short, plain ones: an object may hold a key."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if (
        given is None
        or isinstance(given, bool | int | float)
        or (isinstance(given, str) and len(given) < MAX_SHOWN_CHARS)
    ):
        return repr(given)
    return f"a {type(given).__name__}"
