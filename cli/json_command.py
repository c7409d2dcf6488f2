"""Usage errors of commands with `--json`."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for AutoGen

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class JsonCommand(TyperCommand):
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
