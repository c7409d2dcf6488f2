"""The classes of the commands: help without a type for flags, and usage errors of commands with `--json`."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for AutoGen

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup


class _FlagsWithoutType:
    """A command or group in whose help flags have no type: typer would show `<bool>`, as if they took a value."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.help:
            # typer would keep the line ends of the docstring, and wrap each of its lines.
            self.help: str | None = "\n\n".join(" ".join(part.split()) for part in self.help.split("\n\n"))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class Command(_FlagsWithoutType, TyperCommand):
    """A command, whose usage errors are without pydantic's words."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            if isinstance(text := getattr(error, "message", None), str):
                error.message = text.removeprefix("Value error, ")  # type: ignore[attr-defined]
            raise


class Group(_FlagsWithoutType, TyperGroup):
    """A group of commands."""


class Application(typer.Typer):
    """A typer application of these commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, add_completion=False, **options)

    if not TYPE_CHECKING:  # its signature is typer's

        def command(self, name: str | None = None, *, cls: type[TyperCommand] = Command, **options: Any) -> Any:
            """Return a decorator that adds a function as a command; arguments as for `typer.Typer`."""
            return super().command(name, cls=cls, **options)


class JsonCommand(Command):
    """A command that ends its output with an error object if its options are wrong and `--json` is one of them."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options."""
        as_json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            if as_json and hasattr(error, "format_message"):  # of click, which typer has under a name of its own
                from autogen_codeact.cli.json_output import error_object
                from autogen_codeact.cli.output import print_json

                print_json(error_object(error, command=self.name or "run"))
            raise
