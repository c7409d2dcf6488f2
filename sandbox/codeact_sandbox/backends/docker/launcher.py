"""Starting a runner in a Docker container, over the container's attached stream."""

# ruff: noqa: PLC0415 - the Docker SDK takes a tenth of a second to import, and programs that never use Docker should not wait

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codeact_sandbox.backends.docker.data_mounts import bind_mounts, roots_of, upload
from codeact_sandbox.backends.docker.engine import (
    EngineFailure,
    classify,
    connect,
    is_local,
    is_podman,
    memory_of,
)
from codeact_sandbox.backends.docker.image_requests import Progress, find_image, labels_of
from codeact_sandbox.backends.docker.leftovers import (
    CREATION,
    KEEP,
    owner_labels,
    remove_later,
    remove_orphans_in_background,
)
from codeact_sandbox.backends.docker.stream import DockerStream
from codeact_sandbox.backends.seccomp import docker_profile, profile_path
from codeact_sandbox.files.data import data_sources
from codeact_sandbox.host.waiting import Completion
from codeact_sandbox.types.errors import SandboxNameInUse, SandboxStartError, SandboxUnavailable
from codeact_sandbox.types.limits import machine_memory, parse_size
from codeact_sandbox.types.options import DockerOptions
from codeact_sandbox.types.paths import ENVIRONMENT, PACKAGES, WORKSPACE
from codeact_sandbox.types.protected_names import ProtectedNames

if TYPE_CHECKING:
    from docker import APIClient

logger = logging.getLogger("codeact_sandbox")

NOBODY = "65534:65534"
GONE_TIMEOUT_S = 3
REMOVE_TIMEOUT_S = 10.0
REMOVE_PAUSE_S = 0.5
SMALL_BUFFERS = {f"net.ipv4.tcp_{way}mem": "4096 65536 262144" for way in "rw"}
LOCALHOST_LABEL = "org.autogen-codeact.localhost"
"""Label of images that resolve `localhost` without /etc/hosts; an image built on one inherits it, and can set it to ""."""
NO_ENGINE = (EngineFailure.NO_SOCKET, EngineFailure.REFUSED)


class DockerLauncher:
    """Starts one container.

    `resolve` returns the image to run. It may pull or build it, and is given a future that is completed when the start has been
    cancelled. `progress` is called with a line for each step that takes long.
    """

    def __init__(
        self,
        options: DockerOptions,
        name: str,
        progress: Progress,
        resolve: Callable[[APIClient, Future[None]], str],
    ) -> None:
        self._options = options
        self._name = name
        self._engine = options.docker_host
        self._limits = options.limits
        self._bind_dir = Path(options.bind_dir).resolve() if options.bind_dir is not None else None
        self._seccomp = docker_profile(options.seccomp)
        self._progress = progress
        self._resolve = resolve
        self.python: Hashable | None = None
        """The engine and the id of the container's image, which can't change. None with further mounts: they can cover it."""
        self._client: APIClient | None = None
        self._container: str | None = None
        self._creation = uuid.uuid4().hex
        self._started = False
        self._cancelled = Completion[None]()
        self._lock = threading.Lock()

    @property
    def engine(self) -> str:
        """The engine's address."""
        return f"docker {self._engine or ''}"

    def launch(self, boot: str) -> DockerStream:
        """Create the container, attach to it, start it."""
        import docker.errors

        client = self._client = connect(self._engine)
        sources = data_sources(self._options)
        if self._limits.memory is None:
            self._limits = self._limits.resolved(memory_of(client, self.engine) or machine_memory())
        image = self._resolve(client, self._cancelled)
        managed = self._needs_managed_network(client, image)
        stream = None
        try:
            with self._data(client, image, sources) as data:
                self._container = self._create(client, image, boot, data, managed_network=managed)
            self.python = self._find_python(client, self._container)
            stream = DockerStream(client, self._container)
            client.start(self._container)
            self._started = True
        except (docker.errors.DockerException, OSError) as error:  # OSError: the engine ended meanwhile
            if stream is not None:
                stream.close()
            if self._container is None:  # the engine may have made it, and its reply was lost
                remove_later(self._engine, self._creation)
            self.kill()
            if isinstance(error, docker.errors.DockerException):
                raise _explain(error, self._options, self._name) from error
            raise SandboxUnavailable(
                f"the Docker engine stopped answering while the sandbox was started: {error}"
            ) from error
        remove_orphans_in_background(self._engine)
        return stream

    def _needs_managed_network(self, client: APIClient, image: str) -> bool:
        """Return whether the engine must set up the container's network, or at least its /etc/hosts.

        Without that, the container has a network namespace of its own with a loopback interface only, as with it. But its
        /etc/hosts is empty, so only images that say that they resolve `localhost` start in this way. It takes half of the time.
        """
        if self._options.network != "none" or self._options.autogen.extra_hosts:
            return True
        return not labels_of(find_image(client, image) or {}).get(LOCALHOST_LABEL)

    def _find_python(self, client: APIClient, container: str) -> Hashable | None:
        """Look up the container's image: another program can give the name to another one at any time."""
        if self._options.extra_volumes:
            return None
        image = client.inspect_container(container).get("Image")
        return ("docker", self._engine, image) if image else None

    @contextlib.contextmanager
    def _data(self, client: APIClient, image: str, sources: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
        """Yield the part of the host configuration that shows files at /data; send them first if the engine is elsewhere."""
        from docker.errors import DockerException

        if not sources:
            yield {}
        elif is_local(client):
            yield {"mounts": bind_mounts(sources)}
        else:
            self._progress("sending the files of data= to the Docker engine")
            sent = client.create_container(
                image,
                command=["true"],
                volumes=roots_of(sources),
                labels=owner_labels(),
                network_disabled=True,
            )["Id"]
            try:
                upload(client, sent, sources)
                yield {"volumes_from": [f"{sent}:ro"]}
            finally:
                # The volume stays if the sandbox has it; a container that stays is removed when this process has ended.
                with contextlib.suppress(DockerException, OSError):
                    client.remove_container(sent, force=True, v=True)

    def cancel(self) -> None:
        """Let a running `launch` end early where it takes long."""
        if not self._cancelled.done():
            self._cancelled.set_result(None)

    def _create(
        self, client: APIClient, image: str, boot: str, data: Mapping[str, Any], *, managed_network: bool
    ) -> str:
        labels = {**owner_labels(), CREATION: self._creation}
        if not self._options.autogen.auto_remove:
            labels[KEEP] = "1"
        created = client.create_container(
            image,
            name=self._name,
            entrypoint=["python3", "-I", "-S", "-c", boot],
            command=[],
            user=self._user(),
            working_dir=WORKSPACE,
            environment=ENVIRONMENT,
            labels=labels,
            # PID 1 ignores signals without a handler, and a handler would also accept signals of the code inside.
            stop_signal="SIGKILL",
            stdin_open=True,
            # Not detached means StdinOnce: when this process dies the runner reads the end of the stream and exits.
            detach=False,
            tty=False,
            network_disabled=not managed_network,
            host_config=client.create_host_config(**self._host_config(data)),
        )
        return str(created["Id"])

    def _host_config(self, data: Mapping[str, Any]) -> dict[str, Any]:
        from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

        options, limits = self._options, self._limits
        memory = limits.memory_bytes
        binds = {host: dict(mount) for host, mount in (options.extra_volumes or {}).items()}
        uid, _, gid = self._user().partition(":")
        owner = f"uid={uid},gid={gid or uid}," if uid.isdigit() else ""
        seccomp = [f"seccomp={self._seccomp}"] if self._seccomp is not None else []
        temporary = f"rw,exec,nosuid,nodev,size={parse_size(limits.tmp)},nr_inodes={limits.files},mode=1777"
        tmpfs = {"/tmp": temporary}  # noqa: S108 - a path in the sandbox
        if not any(mount.get("bind") == PACKAGES for mount in binds.values()):
            tmpfs[PACKAGES] = temporary
        mounts = list(data.get("mounts", ()))
        if mounts:
            # New files could otherwise appear beside the mounts, if the root file system can be written.
            for folder in roots_of(mount["Target"] for mount in mounts):
                tmpfs[folder] = "ro,nosuid,nodev,noexec,size=64k,mode=0755"
        if self._bind_dir is not None:
            mounted = {mount.get("bind") for mount in binds.values()}
            # Not as binds, whose text can't have a colon in a path.
            mounts.append(Mount(WORKSPACE, str(self._bind_dir), type="bind"))
            mounts += [
                Mount(f"{WORKSPACE}/{entry}", f"{self._bind_dir}/{entry}", type="bind", read_only=True)
                for entry in ProtectedNames(options.write_back).existing(self._bind_dir)
                if f"{WORKSPACE}/{entry}" not in mounted
            ]
        else:
            size = parse_size(limits.workspace)
            tmpfs[WORKSPACE] = f"rw,exec,nosuid,nodev,{owner}size={size},nr_inodes={limits.files},mode=0755"
        if self._client is not None and is_podman(self._client):
            _warn_of_podman()
            tmpfs = {path: _for_podman(mounted) for path, mounted in tmpfs.items()}
            seccomp = [f"seccomp={profile_path(options.seccomp)}"] if seccomp else []
        return {
            "auto_remove": options.autogen.auto_remove,
            "binds": binds,
            "mounts": mounts,
            "cap_drop": ["ALL"],
            "device_requests": [DeviceRequest(**request) for request in options.device_requests or ()] or None,
            "extra_hosts": dict(options.autogen.extra_hosts or {}) or None,
            "ipc_mode": "private",
            "shm_size": limits.shm_bytes,
            "log_config": LogConfig(type=LogConfig.types.NONE),
            "mem_limit": memory,
            "memswap_limit": memory,
            "nano_cpus": int(limits.cpus * 1e9),
            "network_mode": options.network,
            "pids_limit": limits.pids,
            "read_only": True,
            "runtime": options.runtime,
            "security_opt": ["no-new-privileges:true", *seccomp],
            # Version 1 of control groups does not count the buffers of connections, and runc can't set their limit.
            "sysctls": None if options.network.partition(":")[0] in ("host", "container") else SMALL_BUFFERS,
            "tmpfs": tmpfs,
            **{name: value for name, value in data.items() if name != "mounts"},
            # Not the number of descriptors: the runner limits it for the code, and needs more itself.
            "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        }

    def _user(self) -> str:
        if self._options.user is not None:
            return self._options.user
        if self._bind_dir is not None and self._bind_dir.is_dir():
            owner = self._bind_dir.stat()
            if owner.st_uid != 0:
                return f"{owner.st_uid}:{owner.st_gid}"
        return NOBODY

    def kill(self) -> None:
        """End the container now; with `auto_remove` it is removed.

        It takes a bounded time. A container that could not be removed is logged, and the next start of this process tries again.
        """
        with self._lock:
            client, container, self._container = self._client, self._container, None
        if client is None or container is None:
            return
        if self._started and self._ends_by_itself(client, container):
            return
        until = time.monotonic() + REMOVE_TIMEOUT_S
        while (problem := self._end(client, container, until)) is not None:
            if time.monotonic() + REMOVE_PAUSE_S > until or classify(problem) in NO_ENGINE:
                remove_later(self._engine, self._creation)
                logger.warning(
                    "the container %s could not be removed: %s. The next start tries again; `codeact clean` or "
                    "`docker rm -f %s` removes it by hand.",
                    # As text: the traceback of an error can refer to a socket, and a log record can live long.
                    *(self._name, str(problem), self._name),
                )
                return
            time.sleep(REMOVE_PAUSE_S)

    def _ends_by_itself(self, client: APIClient, container: str) -> bool:
        """Return whether it has ended, as it nearly always does at the end of its stream; its name is free once removed."""
        import docker.errors

        condition: Literal["removed", "not-running"] = "removed" if self._options.autogen.auto_remove else "not-running"
        try:
            client.wait(container, timeout=GONE_TIMEOUT_S, condition=condition)
        except docker.errors.NotFound:
            return True
        except (docker.errors.DockerException, OSError):
            return False
        return True

    def _end(self, client: APIClient, container: str, until: float) -> Exception | None:
        """Remove it, or kill it if it is to be kept; return the error, or None."""
        import docker.errors

        client.timeout = max(1, round(until - time.monotonic()))
        try:
            if self._options.autogen.auto_remove or not self._started:
                client.remove_container(container, force=True, v=True)
            else:
                client.kill(container)
        except docker.errors.NotFound:
            return None
        except docker.errors.APIError as error:
            # It is being removed already, or was not running.
            settled = error.status_code == 409 and ("in progress" in str(error) or "not running" in str(error))
            return None if settled else error
        except (docker.errors.DockerException, OSError) as error:
            return error
        return None

    def close(self) -> None:
        """Close the connections to the engine."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


@functools.cache
def _warn_of_podman() -> None:
    logger.warning(
        "Podman does not limit how many files a sandbox has; rootless with version 1 of control groups it limits neither memory, "
        "processes nor processor time"
    )


def _for_podman(mount: str) -> str:
    """Return the options of a file system in memory without those that Podman does not know."""
    known = [option for option in mount.split(",") if not option.startswith(("uid=", "gid=", "nr_inodes=", "mode="))]
    return ",".join([*known, "mode=1777"])


def _explain(error: Any, options: DockerOptions, name: str) -> SandboxStartError:
    """Convert the engine's error to one that says what to do."""
    text = str(getattr(error, "explanation", None) or error)
    if getattr(error, "status_code", None) == 409 and "already in use" in text:
        return SandboxNameInUse(
            f"a container named {name!r} exists already and was left alone: stop it, or choose another container_name"
        )
    if options.seccomp != "engine" and ("seccomp" in text.lower() or "file name too long" in text):
        return SandboxStartError(
            "the engine can't apply the sandbox's seccomp profile, so nothing was started (Podman reads it from "
            f"{profile_path(options.seccomp)}, on its machine). "
            f'With seccomp="engine" the sandbox has the engine\'s own profile instead. The engine said: {text[-500:]}'
        )
    return SandboxStartError(
        f"the Docker engine refused to start the sandbox: {text}. An image needs python3, and image=, network=, runtime= and "
        "device_requests= what the engine has; allow_domains= reaches single hosts without a network"
    )
