"""The options of a sandbox on the command line; nothing here is slow to import."""

# ruff: noqa: PLC0415 - `codeact --help` must not wait for pydantic

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.sandbox.backends.docker.hosts import DockerHost

MEMORY_BESIDE_DISK = "1g"


@dataclass(frozen=True)
class EngineChoice:
    """Which Docker engines the user chose.

    Args:
        hosts: Their addresses.
        file: JSON file with more of them; None for none.
    """

    hosts: tuple[str | DockerHost, ...] = ()
    file: Path | None = None

    def entries(self) -> list[Any]:
        """Return them as `hosts=` of a sandbox takes them."""
        from autogen_codeact.sandbox.backends.docker.hosts import read_hosts

        return [*self.hosts, *(read_hosts(self.file) if self.file is not None else ())]

    def engines(self) -> Sequence[DockerHost | None]:
        """Return them; None alone for the engine that `docker` would use."""
        from autogen_codeact.cli.exit import CommandError
        from autogen_codeact.sandbox.backends.docker.hosts import parse_hosts

        try:
            return parse_hosts(self.entries()) or (None,)
        except (TypeError, ValueError) as error:
            raise CommandError(str(error)) from error


@dataclass(frozen=True)
class SandboxChoice:
    """What the user chose.

    Args:
        kind: `auto`, `docker`, `bubblewrap` or `none`.
        image: Docker image; None for the default one.
        mode: `process` or `session`; None for `session`, or `process` without a sandbox.
        timeout: Seconds for one block.
        work_dir: Folder of the host that is synchronised with the workspace; None for a temporary one.
        allow_domains: Hosts that the code may reach.
        allow_pip: Whether the code may install packages that the host fetches.
        others: Further options as `NAME=VALUE`.
        packages: Python packages for the sandbox.
        data: Files and folders that the code can read in /data.
        memory: Memory limit; None for the default one.
        disk: Size of the workspace; None for the default one.
        network: Docker network; None for the default one.
        environment: Variables for the code: `NAME` of this process, or `NAME=VALUE`.
        hosts: Addresses of Docker engines, or the engines.
        hosts_file: JSON file with more of them; None for none.
    """

    kind: str = "auto"
    image: str | None = None
    mode: str | None = None
    timeout: float = 60
    work_dir: Path | None = None
    allow_domains: tuple[str, ...] = ()
    allow_pip: bool = False
    others: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    data: tuple[Path, ...] = ()
    memory: str | None = None
    disk: str | None = None
    network: str | None = None
    environment: tuple[str, ...] = ()
    hosts: tuple[str | DockerHost, ...] = ()
    hosts_file: Path | None = None

    def options(self) -> dict[str, Any]:
        """Return the arguments of the executor."""
        from autogen_codeact.sandbox.option_texts import parse_texts
        from autogen_codeact.sandbox.options import merge_options

        mode = self.mode or ("process" if self.kind == "none" else "session")
        options: dict[str, Any] = {"timeout": self.timeout, "work_dir": self.work_dir, "mode": mode}
        if self.kind != "none":
            # The folder is the user's: what the code made belongs there, the code itself does not.
            options["delete_tmp_files"] = True
        options |= {name: value for name in ("image", "network") if (value := getattr(self, name)) is not None}
        options |= parse_texts(self.others)
        for name in ("allow_domains", "packages", "data"):
            if value := getattr(self, name):
                options[name] = [*options.get(name, ()), *value]
        if self.allow_pip:
            options["allow_pip"] = True
        if self.hosts_file is not None or self.hosts:
            engines = EngineChoice(self.hosts, self.hosts_file).entries()
            options["hosts"] = [*options.get("hosts", ()), *engines]
        if self.memory is not None or self.disk is not None:
            options = merge_options(options, {"limits": self._limits(options)})
        if self.environment:
            options["environment"] = {**_as_mapping(options.get("environment")), **_as_mapping(self.environment)}
        return options

    def _limits(self, options: Mapping[str, Any]) -> Any:
        from autogen_codeact.sandbox.limits import Limits, parse_size
        from autogen_codeact.sandbox.options import WRONG_LIMITS, parse_options

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
