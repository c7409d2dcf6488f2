"""Makes Docker sandboxes from options."""

from __future__ import annotations

import sys
import uuid
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from codeact_sandbox.backends.docker.image import resolve_image
from codeact_sandbox.backends.docker.image_requests import Progress
from codeact_sandbox.backends.docker.launcher import DockerLauncher
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.protocol import RunnerSettings
from codeact_sandbox.network.gateway import Gateway
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.limits import MOST_DEFAULT_MEMORY
from codeact_sandbox.types.options import DockerOptions

if TYPE_CHECKING:
    from docker import APIClient

MAX_CONCURRENT_BLOCKS = 32
PIDS_PER_BLOCK = 8


def make_client(
    options: DockerOptions,
    settings: RunnerSettings,
    gateway: Gateway | None,
    progress: Progress | None,
) -> RunnerClient:
    """Make the client of a container that has not been started."""
    name = options.container_name or f"codeact-{uuid.uuid4().hex[:12]}"
    memory = options.limits.memory_bytes if options.limits.memory is not None else MOST_DEFAULT_MEMORY
    settings = replace(
        settings,
        no_index=settings.no_index if options.network == "none" else None,
        memory_bytes=memory,
        rlimits={"NOFILE": options.limits.nofile},
        # gVisor's kernel is in the container's control group and dies with it; a process's own limit is reached before, mostly.
        rlimit_without_cgroup={"AS": memory},
        concurrency=min(MAX_CONCURRENT_BLOCKS, max(1, options.limits.pids // PIDS_PER_BLOCK)),
    )
    say = progress or (lambda line: print(f"codeact: {printable(line)}", file=sys.stderr))  # noqa: T201 - the user waits

    def resolve(client: APIClient, cancelled: Future[None]) -> str:
        packages, engine = options.all_packages, options.docker_host
        return resolve_image(client, options.image, packages, progress=say, engine=engine, cancelled=cancelled)

    launcher = DockerLauncher(options, name, say, resolve)
    return RunnerClient(launcher, settings, name, gateway=gateway)
