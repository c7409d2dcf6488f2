"""The options of a sandbox on the command line; nothing here is slow to import."""

# ruff: noqa: PLC0415, RUF009 - `codeact --help` must not wait for pydantic; options are defaults

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from autogen_codeact.cli.command import option

if TYPE_CHECKING:
    from codeact_sandbox.types.docker_hosts import DockerHost

MEMORY_BESIDE_DISK = "1g"
_option = partial(option, rich_help_panel="Sandbox")

Kind = Literal["auto", "docker", "bubblewrap", "none"]
KindOption = Annotated[
    Kind,
    typer.Option(
        "--sandbox",
        rich_help_panel="Sandbox",
        metavar="KIND",
        help="auto, docker, bubblewrap, or none. auto: Docker if an engine answers, else bubblewrap. "
        "none: directly on this machine, without any protection; for `run` and `exec` only.",
    ),
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        "--image",
        rich_help_panel="Sandbox",
        metavar="IMAGE",
        help="Docker image, instead of the one that `codeact image build` makes.",
    ),
]


@dataclass(frozen=True)
class EngineChoice:
    """Which Docker engines the user chose, for a command without a sandbox of its own."""

    hosts: list[str] | None = option(
        None,
        "--host",
        metavar="URL",
        help="Docker engine, such as tcp://a:2375, in place of the one that `docker` uses; can be repeated. With TLS: "
        """'{"url": "tcp://a:2376", "tls": "folder-of-its-pem-files"}'.""",
    )

    def engines(self) -> Sequence[DockerHost | None]:
        """Return them; None alone for the engine that `docker` would use. Raises `CommandError` if one is invalid."""
        from autogen_codeact.cli.exit import CommandError
        from codeact_sandbox.types.docker_hosts import parse_hosts

        try:
            return parse_hosts(_engines(self.hosts)) or (None,)
        except (TypeError, ValueError) as error:
            raise CommandError(str(error)) from error


def _engines(hosts: Sequence[Any] | None) -> list[Any]:
    """Return the engines of `--host`: addresses, and the fields of those that are JSON."""
    try:
        return [json.loads(each) if isinstance(each, str) and each.startswith("{") else each for each in hosts or ()]
    except ValueError as error:
        raise ValueError(f"an engine of --host is neither an address nor JSON: {error}") from None


@dataclass(frozen=True)
class SandboxChoice:
    """The options of a sandbox."""

    kind: KindOption = "auto"
    image: ImageOption = None
    mode: Literal["process", "session"] | None = _option(
        None,
        metavar="MODE",
        help="process: a new process for each block. session: one interpreter, so that variables persist.",
        show_default="session; for a script, process",
    )
    timeout: float = _option(60, metavar="SECONDS", help="Time limit of one code block.")
    work_dir: Path | None = _option(
        None,
        metavar="FOLDER",
        help="Folder whose files are copied into the sandbox; files that the code writes are copied back.",
    )
    data: list[Path] | None = _option(
        None, metavar="PATH", help="File or folder that the code can read in /data; can be repeated."
    )
    packages: list[str] | None = _option(
        None, "--package", metavar="NAME", help="Python package for the sandbox, as 'polars>=1'; can be repeated."
    )
    memory: str | None = _option(
        None,
        metavar="SIZE",
        help="Memory of the sandbox, such as 2g; its files count.",
        show_default="a quarter of the machine's, at most 4g",
    )
    disk: str | None = _option(
        None,
        metavar="SIZE",
        help=f"Size of the workspace, such as 4g. Without --memory the sandbox has at least {MEMORY_BESIDE_DISK} beside it.",
        show_default="256m",
    )
    network: str | None = _option(
        None,
        metavar="NAME",
        help="Docker network: bridge reaches the internet. See --allow-domain.",
        show_default="none",
    )
    allow_domains: list[str] | None = _option(
        None,
        "--allow-domain",
        metavar="HOST",
        help="Host that the code may connect to, such as api.example.com or '*.example.org:443'; can be repeated.",
    )
    allow_pip: bool = _option(
        False,
        "--allow-pip",
        help="Let the code install packages with pip, although it has no network: this machine fetches them, from where "
        "its own pip does.",
    )
    environment: list[str] | None = _option(
        None,
        "--env",
        metavar="NAME[=VALUE]",
        help="Variable for the code; NAME alone takes the value from codeact's environment, which no process list shows. "
        "Can be repeated.",
    )
    hosts: list[str] | None = _option(
        None,
        "--host",
        metavar="URL",
        help="Docker engine, such as tcp://a:2375; can be repeated: each sandbox starts on the one with the least load. With "
        """TLS: '{"url": "tcp://a:2376", "tls": "folder-of-its-pem-files"}'.""",
    )
    others: list[str] | None = _option(
        None,
        "--option",
        metavar="NAME=VALUE",
        help="Any other option, such as preload=numpy or cpus=2; can be repeated.",
    )

    def options(self) -> dict[str, Any]:
        """Return the arguments of the executor."""
        from codeact_sandbox.types.option_parsing import merge_options
        from codeact_sandbox.types.option_texts import parse_texts

        mode = self.mode or ("process" if self.kind == "none" else "session")
        options: dict[str, Any] = {"timeout": self.timeout, "work_dir": self.work_dir, "mode": mode}
        if self.kind != "none":
            # The folder is the user's: what the code made belongs there, the code itself does not.
            options["delete_tmp_files"] = True
        options |= {name: value for name in ("image", "network") if (value := getattr(self, name)) is not None}
        options |= parse_texts(self.others or ())
        for name in ("allow_domains", "packages", "data"):
            if value := getattr(self, name):
                options[name] = [*options.get(name, ()), *value]
        if self.allow_pip:
            options["allow_pip"] = True
        if engines := _engines(self.hosts):
            options["hosts"] = [*options.get("hosts", ()), *engines]
        if self.memory is not None or self.disk is not None:
            options = merge_options(options, {"limits": self._limits(options)})
        if self.environment:
            options["environment"] = {**_as_mapping(options.get("environment")), **_as_mapping(self.environment)}
        return options

    def _limits(self, options: Mapping[str, Any]) -> Any:
        from codeact_sandbox.types.limits import Limits, parse_size
        from codeact_sandbox.types.option_parsing import parse_options
        from codeact_sandbox.types.options import WRONG_LIMITS

        others = options.get("limits")
        if others is not None and not isinstance(others, Limits):
            raise TypeError(WRONG_LIMITS.format(others))
        values = others.model_dump(include=others.model_fields_set) if others is not None else {}
        values |= {name: options[name] for name in Limits.model_fields if name in options}
        if self.memory is not None:
            values["memory"] = self.memory
        if self.disk is not None:
            values["workspace"] = self.disk
            disk = parse_size(self.disk)
            if values.get("memory") is None:
                values["memory"] = max(disk + parse_size(MEMORY_BESIDE_DISK), Limits().memory_bytes)
            elif disk >= parse_size(values["memory"]):
                raise ValueError(
                    f"--disk {self.disk} needs more than memory={values['memory']!r}: files in the workspace count as memory. "
                    "Leave the memory out, or give more"
                )
        return parse_options(Limits, values)


def _as_mapping(environment: Any) -> Mapping[str, str]:
    """Return variables as a mapping: a name alone refers to the variable of this process."""
    if isinstance(environment, Mapping):
        return environment
    pairs = (str(text).partition("=") for text in environment or ())
    return {name: value if equals else f"${{{name}}}" for name, equals, value in pairs}
