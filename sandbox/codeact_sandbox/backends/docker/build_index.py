"""The package index of a build: the one that the host serves to a sandbox, whose network the steps of the build use.

Nothing of the host's configuration is given to the build: neither addresses nor passwords, certificates or proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from codeact_sandbox.backends.docker.launcher import DockerLauncher
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.protocol import RunnerSettings
from codeact_sandbox.network.connection_log import ConnectionLog
from codeact_sandbox.network.gateway import Gateway
from codeact_sandbox.network.package_index import PackageIndex
from codeact_sandbox.network.pip_config import PipConfig
from codeact_sandbox.types.options import DockerOptions
from codeact_sandbox.types.paths import WORKSPACE

PORT = 3141  # nothing else listens in that network
TOTAL_LIMIT = 16 * 1024**3  # bytes that a build may fetch; they go to the engine's disk


@dataclass(frozen=True)
class BuildIndex:
    """How a build reaches packages."""

    options: dict[str, Any]  # arguments of the SDK's `build`
    # options of `pip install`: an image may have variables of pip, which build arguments can't replace
    pip_options: tuple[str, ...] = ()
    log: ConnectionLog | None = None  # what could not be fetched, or None where the host serves nothing

    def advise(self, advice: str) -> str:
        """Return what the host could not fetch, and what to do."""
        return " ".join((*(self.log.remarks_since(0) if self.log is not None else ()), advice))


class _IndexLauncher(DockerLauncher):
    @property
    def engine(self) -> str:
        """Another name: the start of a sandbox that waits for its image counts among the engine's starts."""
        return f"{super().engine}, for a build"


@contextlib.contextmanager
def serve_index(
    image: str, engine: str | None, network: Literal["none", "bridge"], cancelled: Future[None]
) -> Iterator[BuildIndex]:
    """Serve packages to a build in a container of its own; where the host's pip has no index, it has the engine's network."""
    config = PipConfig.of_host()
    if not config.indexes:
        yield BuildIndex({})
        return
    client = _client(image, engine, network, config)
    asyncio.run(client.start())
    try:
        cancelled.add_done_callback(lambda _: threading.Thread(target=client.stop_blocking).start())
        assert isinstance(client.gateway, Gateway)
        arguments = {
            "PIP_CONFIG_FILE": "/dev/null",
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
        }
        options = {"network_mode": f"container:{client.name}", "buildargs": arguments, "use_config_proxy": False}
        pip_options = ("--index-url", f"http://127.0.0.1:{PORT}/simple/", "--retries", "0")
        yield BuildIndex(options, pip_options, client.gateway.log)
    finally:
        client.stop_blocking()


def _client(image: str, engine: str | None, network: str, config: PipConfig) -> RunnerClient:
    gateway = Gateway(None, PackageIndex(TOTAL_LIMIT, config, total_limit=TOTAL_LIMIT))
    name = f"codeact-index-{uuid.uuid4().hex[:12]}"
    # The engine's own list of system calls: only the runner runs there, and some engines can't apply another one.
    options = DockerOptions(image=image, memory="1g", network=network, seccomp="engine", docker_host=engine)
    settings = RunnerSettings(
        mode="process",
        workspace=WORKSPACE,
        preload=(),
        output_limit=options.limits.output,
        checkpoint=False,
        proxy={**gateway.settings, "port": PORT},
        memory_bytes=options.limits.memory_bytes,
        concurrency=1,
    )
    launcher = _IndexLauncher(options, name, lambda _: None, lambda _client, _cancelled: image)
    return RunnerClient(launcher, settings, name, gateway=gateway)
