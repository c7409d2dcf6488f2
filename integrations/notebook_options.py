"""The options of `%%sandbox`, made from the options of a sandbox."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# IPython's functions have no types.

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from autogen_codeact.sandbox.managed_sandbox import BackendName
from autogen_codeact.sandbox.types.keyword_model import did_you_mean
from autogen_codeact.sandbox.types.limits import Limits, parse_timeout
from autogen_codeact.sandbox.types.option_texts import parse_texts
from autogen_codeact.sandbox.types.options import BubblewrapOptions, DockerOptions, parse_options

DEFAULT_SESSION = "default"
_BACKENDS = ("auto", "docker", "bubblewrap")
_OWN = ("timeout", "limits", "languages")
"""Options that are not `--NAME VALUE` of this name's field."""


@dataclass(frozen=True)
class CellOptions:
    """What stands in the line of a magic.

    Args:
        session: Name of the sandbox.
        backend: The backend, or None if none was given.
        timeout: Seconds, or None if not given.
        language: Language of the cell.
        result: Variable that gets the result, or None.
        options: Further options of the sandbox, by name.
    """

    session: str
    backend: BackendName | None
    timeout: float | None
    language: str
    result: str | None
    options: Mapping[str, Any]


class _Parser(MagicArgumentParser):
    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; the error about an unknown option suggests the nearest one, or lists all."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = sorted(flag for flag in self._option_string_actions if flag.startswith("--"))
            near = did_you_mean(unknown[0].partition("=")[0], flags) or f"; options: {' '.join(flags)}"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return parsed


def make_parser(name: str) -> MagicArgumentParser:
    """Return the parser of the options.

    Args:
        name: Name of the magic, for messages.
    """
    parser = _Parser(name, description="Run the cell in the sandbox.")
    parser.allow_abbrev = False
    parser.add_argument("-s", "--session", default=DEFAULT_SESSION, help="name of the sandbox (default: default)")
    parser.add_argument(
        "-l", "--language", default="python", help="language of the cell: python, sh, bash (default: python)"
    )
    parser.add_argument("-t", "--timeout", type=float, help="seconds that the cell may take (default: 60)")
    parser.add_argument("-r", "--result", metavar="NAME", help="variable that gets the Result")
    parser.add_argument("-b", "--backend", choices=_BACKENDS, help="where the sandbox runs (default: auto)")
    group = parser.add_argument_group("options of a sandbox that is not running yet")
    for field, model in [*DockerOptions.model_fields.items(), *BubblewrapOptions.model_fields.items()]:
        flag = f"--{field.replace('_', '-')}"
        if field in _OWN or flag in parser._option_string_actions:
            continue
        kinds: dict[str, Any] = {"nargs": "?", "const": "true"} if model.annotation is bool else {}
        text = (model.description or "").replace("%", "%%")
        group.add_argument(flag, dest=f"option_{field}", action="append", metavar="VALUE", help=text, **kinds)
    for field in Limits.model_fields:
        flag = f"--{field.replace('_', '-')}"
        text = f"limit: `{field}` of `Limits`"
        group.add_argument(flag, dest=f"limit_{field}", metavar="VALUE", help=text)
    return parser


def usage(parser: argparse.ArgumentParser) -> str:
    """Return the help of a parser for a docstring."""
    return textwrap.dedent(parser.format_help()).replace("::\n", "", 1)


def parse(parser: MagicArgumentParser, line: str) -> CellOptions:
    """Return the options in a line.

    Args:
        parser: What `make_parser` has returned.
        line: The rest of the line after the magic's name.

    Raises:
        UsageError: An option is unknown, or a value is invalid.
    """
    try:
        arguments = vars(parser.parse_argstring(line))
        return CellOptions(
            session=arguments["session"],
            backend=arguments["backend"],
            timeout=None if arguments["timeout"] is None else parse_timeout(arguments["timeout"]),
            language=arguments["language"],
            result=_checked_name(arguments["result"]),
            options=_sandbox_options(arguments),
        )
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def _checked_name(name: str | None) -> str | None:
    if name is not None and not name.isidentifier():
        raise ValueError(f"--result {name!r} is not the name of a variable")
    return name


def _sandbox_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    texts = [
        f"{name.removeprefix('option_')}={value}"
        for name, values in arguments.items()
        if name.startswith("option_")
        for value in values or ()
    ]
    options = parse_texts(texts)
    limits = {name: f"{value}" for name, value in arguments.items() if name.startswith("limit_") and value is not None}
    if limits:
        options["limits"] = parse_options(
            Limits, {name.removeprefix("limit_"): value for name, value in limits.items()}
        )
    return options
