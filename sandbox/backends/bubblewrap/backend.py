"""Makes bubblewrap sandboxes from options."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autogen_codeact.sandbox.backends.bubblewrap import launcher
from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.messages import RunnerSettings
from autogen_codeact.sandbox.types import environment
from autogen_codeact.sandbox.types.options import BubblewrapOptions
from autogen_codeact.sandbox.types.paths import NO_INDEX, WORKSPACE
from autogen_codeact.sandbox.types.protected_names import ProtectedNames


def make_client(options: BubblewrapOptions, tools: Mapping[str, Any], gateway: Gateway | None) -> RunnerClient:
    """Make the client of a bubblewrap sandbox that has not been started.

    Args:
        options: The sandbox's options.
        tools: Settings of the host tools, for the runner.
        gateway: Its proxy, or None without network and package index.
    """
    name = f"codeact-{uuid.uuid4().hex[:12]}"
    limits = options.limits.resolved()
    namespaces = launcher.BubblewrapOptions(
        name=name,
        limits=limits,
        python=options.python,
        readable=tuple(map(Path, options.readable)),
        data=tuple(options.data),
        bind_dir=Path(options.bind_dir).resolve() if options.bind_dir is not None else None,
        write_back=ProtectedNames(options.write_back),
    )
    settings = RunnerSettings(
        mode=options.mode,
        workspace=WORKSPACE,
        preload=tuple(options.preload),
        output_limit=limits.output,
        split_streams=options.split_streams,
        checkpoint=options.checkpoint,
        proxy=gateway.settings if gateway is not None else None,
        no_index=NO_INDEX if gateway is None else None,
        tools=tools,
        memory_bytes=limits.memory_bytes,
        # There is no engine that sets them.
        rlimits={"NOFILE": limits.nofile, "NPROC": limits.pids, "CORE": 0},
        rlimit_without_cgroup={"AS": limits.memory_bytes},
        own_shm=True,
        environment=environment.resolve(options.variables),
    )
    return RunnerClient(launcher.BubblewrapLauncher(namespaces), settings, name, gateway=gateway)
