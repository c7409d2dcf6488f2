"""The options of a sandbox on the command line; nothing here is slow to import."""

# ruff: noqa: PLC0415, RUF009 - `codeact --help` must not wait for pydantic; options are defaults

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from autogen_codeact.cli.command import option
from autogen_codeact.cli.output import CommandError, say

FOUND = Path(".agents", "skills")
NO_SKILLS = [Path("none")]
_option = partial(option, rich_help_panel="Sandbox")

Kind = Literal["auto", "docker", "bubblewrap"]
KindOption = Annotated[
    Kind,
    typer.Option(
        "--sandbox", rich_help_panel="Sandbox", metavar="KIND", help="docker, bubblewrap, or auto: what works."
    ),
]
ImageOption = Annotated[
    str | None,
    typer.Option("--image", rich_help_panel="Sandbox", metavar="IMAGE", help="Image for Docker, in place of our own."),
]


@dataclass(frozen=True)
class SandboxChoice:
    kind: KindOption = "auto"
    timeout: float = _option(60, min=0.001, metavar="SECONDS", help="Time limit of one code block.")
    work_dir: Path | None = _option(
        None,
        metavar="FOLDER",
        help="Folder whose files are copied into the sandbox; what the code writes is copied back.",
    )
    exclude: list[str] | None = _option(
        None,
        metavar="PATTERN",
        help="What of --work-dir is not copied, besides secrets, folders of tools, and what .gitignore names; can be repeated.",
    )
    include: list[str] | None = _option(
        None, metavar="PATTERN", help="What of --work-dir is copied all the same, as .env; can be repeated."
    )
    data: list[Path] | None = _option(None, metavar="PATH", help="What the code can read in /data; can be repeated.")
    skills: list[Path] | None = _option(
        None,
        metavar="DIR",
        help="A skill (a folder with SKILL.md), or a folder of skills, for /skills; or none; can be repeated.",
        show_default=".agents/skills, if it is there",
    )
    packages: list[str] | None = _option(
        None, "--package", metavar="NAME", help="Python package for the sandbox, as 'polars>=1'; can be repeated."
    )
    allow_domains: list[str] | None = _option(
        None,
        "--allow-domain",
        metavar="HOST",
        help="Host that the code may reach, as '*.example.org:443'; can be repeated.",
    )
    allow_pip: bool = _option(
        False,
        "--allow-pip",
        help="Let the code install packages with pip without a network: this machine fetches them.",
    )
    environment: list[str] | None = _option(
        None,
        "--env",
        metavar="NAME[=VALUE]",
        help="Variable for the code; NAME alone takes the value from codeact's environment, which no process list shows. "
        "Can be repeated.",
    )
    secrets: list[str] | None = _option(
        None,
        "--secret",
        metavar="NAME@HOST",
        help="Variable of codeact's environment whose value the code can use in requests to a host, and never sees. "
        "Can be repeated.",
    )
    mcp: Path | None = _option(
        None,
        metavar="FILE.json",
        help='MCP servers whose tools the code can call: {"mcpServers": {"NAME": {"command": …}}}.',
    )
    others: list[str] | None = _option(
        None,
        "--option",
        metavar="NAME=VALUE",
        help="Any other option, such as preload=numpy or user=1000:1000; repeatable.",
    )

    @property
    def is_process(self) -> bool:
        """Whether each block has a process of its own."""
        return "mode=process" in (self.others or ())

    def options(self) -> dict[str, Any]:
        from codeact_sandbox.types.option_parsing import parse_texts

        options: dict[str, Any] = {"timeout": self.timeout, "work_dir": self.work_dir, "mode": "session"}
        options |= parse_texts(self.others or ())
        for name in ("allow_domains", "packages", "data", "skills", "exclude", "include"):
            if value := getattr(self, name):
                options[name] = [*options.get(name, ()), *value]
        if self.mcp is not None:
            options["tools"] = servers_in(self.mcp)
        if self.allow_pip:
            options["allow_pip"] = True
        if self.environment:
            pairs = (text.partition("=") for text in self.environment)
            options["environment"] = {name: value if equals else f"${{{name}}}" for name, equals, value in pairs}
        if self.secrets:
            options["secrets"] = secrets_in(self.secrets)
        return options


def secrets_in(texts: list[str]) -> dict[str, Any]:
    """Return the secrets that `--secret` names; one may have several hosts."""
    hosts: dict[str, list[str]] = {}
    for text in texts:
        name, _, host = text.partition("@")
        if not host:  # not shown: it may be the secret itself
            raise CommandError("--secret takes NAME@HOST, such as API_KEY@api.example.com.")
        hosts.setdefault(name, []).append(host)
    return {name: {"env": name, "hosts": each} for name, each in hosts.items()}


def with_skills(choice: SandboxChoice) -> SandboxChoice:
    """Add the skills of the current folder, unless others are named or none are wanted, and say which skills there are."""
    from codeact_sandbox.types.filenames import printable
    from codeact_sandbox.types.skills import find_skills, has_skills

    if choice.skills == NO_SKILLS:
        return replace(choice, skills=None)
    found = FOUND.absolute()
    if not choice.skills and has_skills(found):
        choice = replace(choice, skills=[found])
    if choice.skills:
        try:
            names = ", ".join(skill.name for skill in find_skills(choice.skills))
        except ValueError as error:
            hint = " (--skills none leaves the skills of .agents/skills out)" if choice.skills == [found] else ""
            raise CommandError(f"{error}{hint}.") from None
        say(f"skills, from {', '.join(printable(str(path)) for path in choice.skills)}: {names}")
    return choice


def servers_in(file: Path) -> list[Any]:
    from codeact_sandbox.tools.mcp_client import read_servers

    try:
        return [*read_servers(file.read_text(encoding="utf-8"), str(file))]
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{error}.") from error
