"""The classes of the commands: groups of options, and usage errors with `--json`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from autogen_codeact.cli.output import can_erase, clean_exit, error_object, print_json


class _FlagsWithoutType:
    """A command or group in whose help flags have no type: typer would show `<bool>`, as if they took a value."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.help:
            # typer would keep the line ends of the docstring, and wrap each of its lines.
            self.help: str | None = "\n\n".join(" ".join(part.split()) for part in self.help.split("\n\n"))

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class _Group(_FlagsWithoutType, TyperGroup):
    pass


class Command(_FlagsWithoutType, TyperCommand):
    """A command. With `--json`, wrong options end its output with an error object, too."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        from autogen_codeact.cli.config import fill  # noqa: PLC0415 - it needs the options, which are made with this module

        as_json = "--json" in args
        try:
            context = super().make_context(info_name, args, parent, **extra)
            fill(context.params, lambda name: _is_given(context, name))
        except Exception as error:
            usage: Any = error if hasattr(error, "format_message") else None  # typer has its own copy of click
            if usage is not None:
                usage.message = usage.message.removeprefix("Value error, ")  # of pydantic, which typer uses
                if "unexpected extra argument" in usage.message:
                    usage.message += ". Put text with spaces in quotes."
                if as_json:
                    print_json(error_object(usage))
            raise
        return context


def _is_given(context: Any, name: str) -> bool:
    return getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"


class Application(typer.Typer):
    """A typer application. A parameter of a command that is a dataclass stands for the options in its fields."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": _Group, "add_completion": False, **options})

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line; without boxes, whose lines a screen reader would read aloud, where they are not wanted."""
        if not can_erase():
            self.rich_markup_mode = None
        return super().__call__(*arguments, **options)

    if not TYPE_CHECKING:  # its signature is typer's

        def command(self, name: str | None = None, *, cls: type[TyperCommand] = Command, **options: Any) -> Any:
            """Return a decorator that adds a function as a command."""
            add = super().command(name, cls=cls, **options)
            return lambda function: add(_with_single_options(function))


def _with_single_options(function: Callable[..., int]) -> Callable[..., None]:
    """Return a command whose parameters are options only: the fields of dataclasses in the place of these.

    The command exits with the status that the function returns, or with a message.
    """
    every = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in _options(function)]

    def run(**arguments: Any) -> None:
        with clean_exit():
            raise typer.Exit(_call(function, arguments))

    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every}
    run.__doc__ = function.__doc__
    return run


def option(default: Any, *names: str, **settings: Any) -> Any:
    """Return a field of a dataclass that is an option of a command, with what `typer.Option` takes."""
    return field(default=default, metadata={"option": typer.Option(*names, **settings)})


def _options(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    settings = {each.name: each.metadata for each in fields(cast(Any, function))} if is_dataclass(function) else {}
    for each in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(each.annotation):
            yield from _options(cast(Any, each.annotation))
        elif found := settings.get(each.name):
            yield each.replace(annotation=Annotated[each.annotation, found["option"]])
        else:
            yield each


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function, or make a dataclass, with its part of the arguments."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    kinds: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}
    nested = {name: _call(kind, arguments) for name, kind in kinds.items()}
    return function(**{each.name: arguments[each.name] for each in parameters if each.name not in nested}, **nested)
