"""Makes bubblewrap sandboxes from options."""

from __future__ import annotations

import uuid
from dataclasses import replace

from autogen_codeact.sandbox.backends.bubblewrap.launcher import BubblewrapLauncher
from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.messages import RunnerSettings
from autogen_codeact.sandbox.types.options import BubblewrapOptions


def make_client(options: BubblewrapOptions, settings: RunnerSettings, gateway: Gateway | None) -> RunnerClient:
    """Make the client of a bubblewrap sandbox that has not been started."""
    name = f"codeact-{uuid.uuid4().hex[:12]}"
    limits = options.limits.resolved()
    settings = replace(
        settings,
        output_limit=limits.output,
        memory_bytes=limits.memory_bytes,
        # There is no engine that sets them.
        rlimits={"NOFILE": limits.nofile, "NPROC": limits.pids, "CORE": 0},
        rlimit_without_cgroup={"AS": limits.memory_bytes},
        own_shm=True,
    )
    return RunnerClient(BubblewrapLauncher(options, name, limits), settings, name, gateway=gateway)
