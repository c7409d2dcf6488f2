"""Arguments of the executors: the options of their sandbox, and what AutoGen adds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, cast

from autogen_core import ComponentModel
from pydantic import BaseModel, Field, PlainValidator

from autogen_codeact.executors.functions_module import CodeFunction
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.sandbox.options import parse_options
from autogen_codeact.sandbox.pool import SandboxPool
from autogen_codeact.sandbox.tools.approval import ApproveTool

P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)
S = TypeVar("S")
_AS_GIVEN = PlainValidator(lambda value: value)


class ExecutorArguments(BaseModel):
    """Arguments of every executor that a config can't hold as they are."""

    functions: Annotated[
        Sequence[CodeFunction],
        _AS_GIVEN,
        Field(
            description="Functions whose source is put into a module for the code, with the packages that they need."
        ),
    ] = ()
    tools: Annotated[
        Sequence[ToolLike],
        _AS_GIVEN,
        Field(
            description="Functions of this process that the code can call: typed functions, AutoGen tools, workbenches "
            "(docs/tools.md)."
        ),
    ] = ()
    approve_tool: Annotated[
        ApproveTool | None,
        _AS_GIVEN,
        Field(
            description="Called before each call to a tool: a function or a policy such as `AskPerson()`. The call is made only "
            "if it approves."
        ),
    ] = None
    progress: Annotated[
        Callable[[str], None] | None,
        _AS_GIVEN,
        Field(
            description="Called with a line for each step that takes long, such as a pull. By default it goes to standard error."
        ),
    ] = None
    pool: Annotated[
        SandboxPool | None,
        _AS_GIVEN,
        Field(
            description="A pool with the same options: the start takes one of its sandboxes. The config does not contain it."
        ),
    ] = None


class ExecutorConfig(BaseModel):
    """What a component config contains in addition to the options of the sandbox."""

    tools: list[ComponentModel] = Field(default_factory=list)
    approve_tool: ComponentModel | None = None


def takes(
    model: Callable[P, M], *positional: str
) -> Callable[[Callable[[S, M], None]], Callable[Concatenate[S, P], None]]:
    """Decorate an `__init__` whose argument is a model: callers give the model's fields as keyword arguments instead.

    Args:
        model: The model.
        positional: Arguments that may also be given by position, in this order.
    """
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)

    def decorate(init: Callable[[S, M], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(init)
        def __init__(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:  # noqa: N807
            bound = signature.bind(self, *args, **kwargs) if args else None
            given = {name: value for name, value in bound.arguments.items() if name != "self"} if bound else kwargs
            init(self, parse_options(cast(Any, model), given, type(self).__name__))

        signature = inspect.Signature(
            [_SELF, *(_parameter(name, model, positional) for name in _order(model, positional))]
        )
        __init__.__signature__ = signature  # type: ignore[attr-defined]
        __init__.__doc__ = f"Make it; nothing is started yet.\n\nArgs:\n{_describe(model)}"
        return __init__

    return decorate


_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


def _order(model: type[BaseModel], positional: Sequence[str]) -> list[str]:
    return [*positional, *(name for name in model.model_fields if name not in positional)]


def _parameter(name: str, model: type[BaseModel], positional: Sequence[str]) -> inspect.Parameter:
    field = model.model_fields[name]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if name in positional else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=field.default, annotation=field.annotation)


def _describe(model: type[BaseModel]) -> str:
    lines = []
    for name, field in model.model_fields.items():
        default = "" if field.default in (None, ()) else f" Default {field.default!r}."
        lines.append(f"    {name}: {field.description}{default}")
    return "\n".join(lines)


def options_of(arguments: BaseModel, model: type[M]) -> M:
    """Return the part of validated arguments that is the sandbox's options."""
    return model.model_construct(**{name: getattr(arguments, name) for name in model.model_fields})
