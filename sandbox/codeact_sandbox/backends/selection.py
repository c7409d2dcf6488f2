"""Choosing a backend, and making sandboxes with it. The libraries of a backend are imported when it is used."""

# ruff: noqa: PLC0415 - who uses one backend must not wait for the libraries of the other

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from codeact_sandbox.backends.facts import COMMANDS, packages_to_find
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.protocol import RunnerSettings
from codeact_sandbox.network.connector import Connector, Resolver, resolve_by_system
from codeact_sandbox.types import environment
from codeact_sandbox.types.allowed_domains import Policy
from codeact_sandbox.types.errors import SandboxUnavailable
from codeact_sandbox.types.limits import machine_memory, parse_size
from codeact_sandbox.types.option_parsing import only_for_bubblewrap
from codeact_sandbox.types.options import BubblewrapOptions, DockerOptions, SandboxOptions
from codeact_sandbox.types.paths import NO_INDEX, WORKSPACE
from codeact_sandbox.types.secrets import Secret, look_up

if TYPE_CHECKING:
    from codeact_sandbox.network.gateway import Gateway

Progress = Callable[[str], None]


def make_client(
    options: SandboxOptions,
    tools: Mapping[str, Any],
    progress: Progress | None = None,
    resolve_name: Resolver = resolve_by_system,
) -> RunnerClient:
    gateway = _make_gateway(options, resolve_name)
    placeholders = gateway.secrets.placeholders if gateway is not None and gateway.secrets is not None else {}
    settings = RunnerSettings(
        mode=options.mode,
        workspace=WORKSPACE,
        preload=tuple(options.preload),
        output_limit=options.limits.output,
        checkpoint=options.checkpoint,
        memory_bytes=None,
        proxy=gateway.settings if gateway is not None else None,
        no_index=NO_INDEX if gateway is None else None,
        tools=tools,
        environment={**environment.resolve(options.variables), **placeholders},
        find_packages=packages_to_find(options),
        find_commands=COMMANDS,
    )
    if isinstance(options, DockerOptions):
        from codeact_sandbox.backends.docker import backend as docker

        return docker.make_client(options, settings, gateway, progress)
    assert isinstance(options, BubblewrapOptions)
    from codeact_sandbox.backends.bubblewrap.launcher import BubblewrapLauncher

    name, limits = f"codeact-{uuid.uuid4().hex[:12]}", options.limits.resolved(machine_memory())
    settings = replace(
        settings,
        output_limit=limits.output,
        memory_bytes=limits.memory_bytes,
        # There is no engine that sets them.
        rlimits={"NOFILE": limits.nofile, "NPROC": limits.pids, "CORE": 0},
        rlimit_without_cgroup={"AS": limits.memory_bytes},
    )
    return RunnerClient(BubblewrapLauncher(options, name, limits), settings, name, gateway=gateway)


def _make_gateway(options: SandboxOptions, resolve_name: Resolver) -> Gateway | None:
    domains, secrets = options.allow_domains, None
    values = look_up(cast(dict[str, Secret], options.secrets))
    policy = Policy(domains, (entry for each in values for entry in each.entries))
    connector = Connector(policy, resolve_name) if domains or values else None
    if values:
        from codeact_sandbox.network.secrets import Secrets

        secrets = Secrets(values)
    index = None
    if options.allow_pip:
        from codeact_sandbox.network.package_index import PackageIndex

        index = PackageIndex(parse_size(options.limits.resolved().tmp), resolve=resolve_name)
    if connector is None and index is None:
        return None
    from codeact_sandbox.network.gateway import Gateway

    return Gateway(connector, index, secrets)


def external_effects(options: SandboxOptions) -> str | None:
    """Return why blocks can have effects outside the sandbox past this process, with a field for `blocks`, or None."""
    network = getattr(options, "network", "none")
    if network != "none":
        return (
            f"its sandbox has a network (network={network!r}), which its {{blocks}} could use if they were run again; "
            "give the agent an executor with allow_domains instead to have it rebuilt"
        )
    volumes = getattr(options, "extra_volumes", None) or {}
    if any("ro" not in mount.get("mode", "rw").split(",") for mount in volumes.values()):
        return (
            "folders of the host are mounted in its sandbox (extra_volumes), which its {blocks} could change if they were "
            'run again; mount them with mode "ro" to have it rebuilt'
        )
    if options.bind_dir is None:
        return None
    return (
        "its workspace is a folder of the host (bind_dir), which its {blocks} could change if they were run again; give the "
        "agent an executor with work_dir instead to have it rebuilt"
    )


def choose_backend(options: Collection[str]) -> Literal["docker", "bubblewrap"]:
    """Find out which backend "auto" means for some options; blocks for some milliseconds."""
    if only_for_bubblewrap(options):
        return "bubblewrap"
    if "docker_host" in options:
        return "docker"
    from codeact_sandbox.backends.bubblewrap.launcher import check_bubblewrap
    from codeact_sandbox.backends.docker.engine import connect

    try:
        with contextlib.closing(connect()):
            return "docker"
    except SandboxUnavailable as error:
        without_docker = error
    only_docker = DockerOptions.model_fields.keys() - BubblewrapOptions.model_fields.keys()
    for name in options:
        if name in only_docker:
            raise SandboxUnavailable(f"{name}= needs Docker. {without_docker}") from without_docker
    try:
        check_bubblewrap()
    except SandboxUnavailable as error:
        raise SandboxUnavailable(
            f"There is no sandbox on this machine. Docker: {without_docker} Or bubblewrap: {error}."
        ) from error
    return "bubblewrap"
