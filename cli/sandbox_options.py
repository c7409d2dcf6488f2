"""The options that every command with a sandbox has, in one place."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autogen_codeact.cli.sandbox_choice import MEMORY_BESIDE_DISK, EngineChoice, SandboxChoice
from autogen_codeact.cli.shared_options import Command, with_options

sandbox_option = partial(typer.Option, rich_help_panel="Sandbox")


class SandboxKind(StrEnum):
    """Where blocks run."""

    AUTO = "auto"
    DOCKER = "docker"
    BUBBLEWRAP = "bubblewrap"
    NONE = "none"


SandboxOption = Annotated[
    SandboxKind,
    sandbox_option(
        metavar="KIND",
        help="auto, docker, bubblewrap or none. auto: Docker if an engine answers, else bubblewrap. "
        "none: directly on this machine, without any protection.",
    ),
]
IsolatedSandboxOption = Annotated[
    SandboxKind,
    sandbox_option(
        metavar="KIND", help="auto, docker or bubblewrap. auto: Docker if an engine answers, else bubblewrap."
    ),
]
ImageOption = Annotated[
    str | None,
    sandbox_option(metavar="IMAGE", help="Docker image, instead of the one that `codeact image build` makes."),
]
HostOption = Annotated[
    list[str] | None,
    sandbox_option(
        metavar="URL",
        help="Docker engine, such as tcp://a:2375; can be repeated: each sandbox starts on the one with the least load.",
    ),
]
HostsOption = Annotated[
    Path | None,
    sandbox_option(
        metavar="FILE", help="JSON file with a list of Docker engines, also with TLS files (docs/engines.md)."
    ),
]


def _options(
    *,
    sandbox: SandboxOption = SandboxKind.AUTO,
    image: ImageOption = None,
    timeout: Annotated[float, sandbox_option(metavar="SECONDS", help="Time limit of one code block.")] = 60,
    work_dir: Annotated[
        Path | None,
        sandbox_option(
            metavar="FOLDER",
            help="Folder whose files are copied into the sandbox; files that the code writes are copied back.",
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        sandbox_option(
            metavar="PATH",
            help="File or folder that the code can read in /data, of any size; it is not copied. Can be repeated.",
        ),
    ] = None,
    package: Annotated[
        list[str] | None,
        sandbox_option(
            metavar="NAME",
            help="Python package to install into the image, such as polars or 'polars>=1'; can be repeated.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        sandbox_option(
            metavar="SIZE",
            help="Memory of the sandbox, such as 2g; its files count.",
            show_default="a quarter of the machine's, at most 4g",
        ),
    ] = None,
    disk: Annotated[
        str | None,
        sandbox_option(
            metavar="SIZE",
            help=f"Size of the workspace, such as 4g. Without --memory the sandbox has at least {MEMORY_BESIDE_DISK} beside it.",
            show_default="256m",
        ),
    ] = None,
    network: Annotated[
        str | None,
        sandbox_option(
            metavar="NAME", help="Docker network: bridge reaches the internet. See --allow-domain.", show_default="none"
        ),
    ] = None,
    allow_domain: Annotated[
        list[str] | None,
        sandbox_option(
            metavar="HOST",
            help="Host that the code may connect to, such as api.example.com or '*.example.org:443'; can be repeated.",
        ),
    ] = None,
    allow_pip: Annotated[
        bool,
        sandbox_option(
            "--allow-pip",
            help="Let the code install packages with pip, although it has no network: this machine fetches them, from where "
            "its own pip does.",
        ),
    ] = False,
    env: Annotated[
        list[str] | None,
        sandbox_option(
            metavar="NAME[=VALUE]",
            help="Variable for the code. NAME alone takes the value from codeact's environment, so that no process list shows "
            "it. Can be repeated.",
        ),
    ] = None,
    host: HostOption = None,
    hosts: HostsOption = None,
    option: Annotated[
        list[str] | None,
        sandbox_option(
            metavar="NAME=VALUE",
            help="Any other option of the sandbox, such as preload=numpy or limits='{\"cpus\": 2}'; can be repeated.",
        ),
    ] = None,
) -> SandboxChoice:
    return SandboxChoice(
        kind=sandbox.value,
        image=image,
        timeout=timeout,
        work_dir=work_dir,
        data=tuple(data or ()),
        packages=tuple(package or ()),
        memory=memory,
        disk=disk,
        network=network,
        allow_domains=tuple(allow_domain or ()),
        allow_pip=allow_pip,
        environment=tuple(env or ()),
        hosts=tuple(host or ()),
        hosts_file=hosts,
        others=tuple(option or ()),
    )


def with_sandbox_options(*, isolated: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of a sandbox; they reach it as its argument `choice`, a `SandboxChoice`."""
    return with_options("choice", _options, {"sandbox": {"annotation": IsolatedSandboxOption}} if isolated else None)


def _engines(
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Docker engine, such as tcp://a:2375, in place of the one that `docker` uses; can be repeated.",
        ),
    ] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSON file with a list of Docker engines, also with TLS files (docs/engines.md)."
        ),
    ] = None,
) -> EngineChoice:
    return EngineChoice(tuple(host or ()), hosts)


def with_engine_options() -> Callable[[Command], Command]:
    """Give a command without a sandbox of its own the options of engines; they reach it as its argument `engines`."""
    return with_options("engines", _engines)
