"""Arguments of the executors: the options of their sandbox, and what AutoGen adds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from autogen_core import ComponentModel
from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from autogen_codeact.executors.functions_module import CodeFunction
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.sandbox.options import parse_options
from autogen_codeact.sandbox.pool import SandboxPool
from autogen_codeact.sandbox.tools.approval import ApproveTool

P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)
S = TypeVar("S")


class ExecutorArguments(BaseModel):
    """Arguments of every executor that a config can't hold as they are; their users check them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    functions: SkipValidation[Sequence[CodeFunction]] = Field(
        (), description="Functions whose source is put into a module for the code, with the packages that they need."
    )
    tools: SkipValidation[Sequence[ToolLike]] = Field(
        (),
        description="Functions of this process that the code can call: typed functions, AutoGen tools, workbenches "
        "(docs/tools.md).",
    )
    approve_tool: SkipValidation[ApproveTool | None] = Field(
        None,
        description="Called before each call to a tool: a function or a policy such as `AskPerson()`. The call is made only if "
        "it approves.",
    )
    progress: SkipValidation[Callable[[str], None] | None] = Field(
        None,
        description="Called with a line for each step that takes long, such as a pull. By default it goes to standard error.",
    )
    pool: SkipValidation[SandboxPool | None] = Field(
        None,
        description="A pool with the same options: the start takes one of its sandboxes. The config does not contain it.",
    )


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
    fields = cast(type[BaseModel], model).model_fields
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for name in dict.fromkeys((*positional, *fields)):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if name in positional else inspect.Parameter.KEYWORD_ONLY
        field = fields[name]
        parameters.append(inspect.Parameter(name, kind, default=field.default, annotation=field.annotation))
    signature = inspect.Signature(parameters)

    def decorate(init: Callable[[S, M], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(init)
        def __init__(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:  # noqa: N807
            given: dict[str, Any] = kwargs
            if args:
                given = {**signature.bind(self, *args, **kwargs).arguments}
                del given["self"]
            init(self, parse_options(cast(Any, model), given, type(self).__name__))

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        __init__.__doc__ = f"Make it; nothing is started yet.\n\nArgs:\n{_describe(fields)}"
        return __init__

    return decorate


def _describe(fields: Any) -> str:
    defaults = {
        name: "" if each.default in (None, ()) else f" Default {each.default!r}." for name, each in fields.items()
    }
    return "\n".join(f"    {name}: {each.description}{defaults[name]}" for name, each in fields.items())


def options_of(arguments: BaseModel, model: type[M]) -> M:
    """Return the part of validated arguments that is the sandbox's options."""
    return model.model_construct(**{name: getattr(arguments, name) for name in model.model_fields})
