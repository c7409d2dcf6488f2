"""Starting a runner in a Docker container, over the container's attached stream."""

# ruff: noqa: PLC0415 - the Docker SDK takes a tenth of a second to import, and who never uses Docker should not wait for it

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .docker_engine import connect
from .docker_image import Progress, resolve_image
from .errors import SandboxNameInUse, SandboxStartError, SandboxUnavailable
from .limits import Limits, parse_size

if TYPE_CHECKING:
    from docker import APIClient
    from docker.types import DeviceRequest

WORKSPACE = "/workspace"
HOME = "/tmp/home"  # noqa: S108 - a path in the sandbox
DEFAULT_ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    # The sandbox is thrown away: Debian's guard of its own Python protects nothing here.
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
LABEL = "org.autogen-codeact"
GONE_TIMEOUT_S = 3
DIAGNOSTICS_LIMIT = 16 * 1024
_STREAM_HEADER = struct.Struct(">BxxxL")
_STDERR = 2


@dataclass(frozen=True)
class ContainerOptions:
    """What a container is made from; each weaker choice is the user's own and explicit.

    Args:
        image: Image reference.
        packages: Packages of a derived image.
        name: The container's name.
        limits: What it may use.
        user: `uid:gid`.
        network: Docker network; `none` has only a loopback interface.
        read_only: Whether its root file system is read-only.
        seccomp: Profile as JSON text, or None for the engine's own.
        environment: Variables, resolved.
        bind_dir: Host folder mounted at /workspace, or None.
        volumes: Further mounts, as Docker's SDK has them.
        extra_hosts: Names for its /etc/hosts.
        device_requests: GPUs and the like.
        auto_remove: Whether Docker removes it when it ends.
        docker_host: Address of the engine, or None.
    """

    image: str
    packages: tuple[str, ...]
    name: str
    limits: Limits
    user: str
    network: str
    read_only: bool
    seccomp: str | None
    environment: Mapping[str, str]
    bind_dir: str | None
    volumes: Mapping[str, Mapping[str, str]]
    extra_hosts: Mapping[str, str]
    device_requests: Sequence[DeviceRequest]
    auto_remove: bool
    docker_host: str | None
    labels: Mapping[str, str] = field(default_factory=dict)


class DockerLauncher:
    """Starts one container.

    Args:
        options: What it is made from.
        progress: Called with a line for each step that takes long.
    """

    def __init__(self, options: ContainerOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._client: APIClient | None = None
        self._container: str | None = None
        self._lock = threading.Lock()

    def launch(self, boot: str) -> DockerStream:
        """Create the container, attach to it, start it.

        Args:
            boot: Python source that it runs first.

        Returns:
            The attached stream.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
        """
        import docker.errors

        client = self._client = connect(self._options.docker_host)
        image = resolve_image(client, self._options.image, self._options.packages, progress=self._progress)
        stream = None
        try:
            self._container = self._create(client, image, boot)
            stream = DockerStream(client, self._container)
            client.start(self._container)
        except (docker.errors.DockerException, OSError) as error:  # OSError: the engine went away half-way
            if stream is not None:
                stream.close()
            self.kill()
            if isinstance(error, docker.errors.DockerException):
                raise _explain(error, self._options) from error
            raise SandboxUnavailable(
                f"the Docker engine stopped answering while the sandbox was started: {error}"
            ) from error
        return stream

    def _create(self, client: APIClient, image: str, boot: str) -> str:
        options = self._options
        created = client.create_container(
            image,
            name=options.name,
            entrypoint=["python3", "-S", "-c", boot],
            command=[],
            user=options.user,
            working_dir=WORKSPACE,
            environment={**DEFAULT_ENVIRONMENT, **options.environment},
            labels={
                f"{LABEL}.kind": "sandbox",
                f"{LABEL}.owner": f"{socket.gethostname()}:{os.getpid()}",
                **options.labels,
            },
            # PID 1 hears no signal that it has no handler for, and a handler would hear the code inside, too.
            stop_signal="SIGKILL",
            stdin_open=True,
            # Not detached means StdinOnce: when this process dies the runner reads the end of the stream and exits.
            detach=False,
            tty=False,
            host_config=client.create_host_config(**self._host_config()),
        )
        return str(created["Id"])

    def _host_config(self) -> dict[str, Any]:
        from docker.types import LogConfig, Ulimit

        options, limits = self._options, self._options.limits
        memory = parse_size(limits.memory)
        binds = {host: dict(mount) for host, mount in options.volumes.items()}
        uid, _, gid = options.user.partition(":")
        owner = f"uid={uid},gid={gid or uid}," if uid.isdigit() else ""
        seccomp = [f"seccomp={options.seccomp}"] if options.seccomp is not None else []
        tmpfs = {"/tmp": f"rw,exec,nosuid,nodev,size={parse_size(limits.tmp)},nr_inodes={limits.files},mode=1777"}  # noqa: S108
        if options.bind_dir is not None:
            binds[options.bind_dir] = {"bind": WORKSPACE, "mode": "rw"}
        else:
            size = parse_size(limits.workspace)
            tmpfs[WORKSPACE] = f"rw,exec,nosuid,nodev,{owner}size={size},nr_inodes={limits.files},mode=0755"
        return {
            "auto_remove": options.auto_remove,
            "binds": binds,
            "cap_drop": ["ALL"],
            "device_requests": list(options.device_requests) or None,
            "extra_hosts": dict(options.extra_hosts) or None,
            "ipc_mode": "private",
            "log_config": LogConfig(type=LogConfig.types.NONE),
            "mem_limit": memory,
            "memswap_limit": memory,
            "nano_cpus": int(limits.cpus * 1e9),
            "network_mode": options.network,
            "pids_limit": limits.pids,
            "read_only": options.read_only,
            "security_opt": ["no-new-privileges:true", *seccomp],
            "tmpfs": tmpfs,
            "ulimits": [
                Ulimit(name="nofile", soft=limits.nofile, hard=limits.nofile),
                Ulimit(name="core", soft=0, hard=0),
            ],
        }

    def kill(self) -> None:
        """End the container now; with `auto_remove` it is removed."""
        import docker.errors

        with self._lock:
            client, container, self._container = self._client, self._container, None
        if client is None or container is None:
            return
        # It is nearly always gone by itself by now, having read the end of its stream; its name is free once removed.
        try:
            client.wait(
                container, timeout=GONE_TIMEOUT_S, condition="removed" if self._options.auto_remove else "not-running"
            )
        except docker.errors.NotFound:
            return
        except (docker.errors.APIError, OSError):
            with contextlib.suppress(docker.errors.APIError, OSError):
                if self._options.auto_remove:
                    client.remove_container(container, force=True, v=True)
                else:
                    client.kill(container)

    def close(self) -> None:
        """Close the connections to the engine."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _explain(error: Any, options: ContainerOptions) -> SandboxStartError:
    """Turn the engine's refusal into a sentence that says what to do."""
    text = str(getattr(error, "explanation", None) or error)
    if getattr(error, "status_code", None) == 409 and "already in use" in text:
        return SandboxNameInUse(
            f"a container named {options.name!r} exists already and was left alone: stop it, or choose another container_name"
        )
    if "python3" in text and ("executable file not found" in text or "no such file" in text):
        return SandboxStartError(
            f"the image {options.image} has no python3: the sandbox needs an image with Python 3.8 or later"
        )
    if options.seccomp is not None and ("seccomp" in text.lower() or "file name too long" in text):
        return SandboxStartError(
            "the engine can't apply the sandbox's seccomp profile, so nothing was started (Podman may take it for a path). "
            f'With seccomp="engine" the sandbox has the engine\'s own profile instead. The engine said: {text[-500:]}'
        )
    if options.device_requests and ("device driver" in text or "nvidia" in text.lower()):
        return SandboxStartError(
            f"the Docker engine can't serve device_requests (are the GPU's drivers installed?): {text}"
        )
    return SandboxStartError(f"the Docker engine refused to start the sandbox: {text}")


class DockerStream:
    """The attached stream of a container: Docker's 8-byte headers on the way out, plain bytes on the way in.

    Args:
        client: Connection to the engine.
        container: Id of a container that has been created but not started.
    """

    def __init__(self, client: APIClient, container: str) -> None:
        attached = client.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._buffer = bytearray()
        self._remaining = 0
        self._kind = 0
        self._diagnostics = bytearray()
        self._exit: Any = None
        try:
            # With auto_remove the exit code can't be had afterwards, so the question is put before the start.
            self._exit = client.post(
                f"{client.base_url}/v{client.api_version}/containers/{container}/wait",
                params={"condition": "next-exit"},
                stream=True,
                timeout=(10, None),
            )
        except BaseException:
            self.close()
            raise

    @property
    def read_fd(self) -> int:
        """The socket."""
        return self._socket.fileno()

    @property
    def write_fd(self) -> int:
        """The socket."""
        return self._socket.fileno()

    def read(self) -> bytes:
        """Read what the container's standard output holds."""
        while True:
            try:
                data = self._socket.recv(256 * 1024)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None
            if not data:
                return b""
            out = self._demultiplex(data)
            if out:
                return out

    def _demultiplex(self, data: bytes) -> bytes:
        self._buffer += data
        out = bytearray()
        start = 0
        while True:
            if not self._remaining:
                if len(self._buffer) - start < _STREAM_HEADER.size:
                    break
                self._kind, self._remaining = _STREAM_HEADER.unpack_from(self._buffer, start)
                start += _STREAM_HEADER.size
            piece = self._buffer[start : start + self._remaining]
            start += len(piece)
            self._remaining -= len(piece)
            if self._kind == _STDERR:
                self._diagnostics = (self._diagnostics + piece)[-DIAGNOSTICS_LIMIT:]
            else:
                out += piece
            if self._remaining:
                break
        del self._buffer[:start]
        return bytes(out)

    def write(self, data: memoryview) -> int:
        """Write to the container's standard input."""
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def wait_exit(self, timeout_s: float) -> str:
        """The container's exit code and what the runner wrote to its standard error."""
        said = self._diagnostics.decode("utf-8", "replace").strip()
        code = self._exit_code(timeout_s)
        text = f"its exit code is {code}" if code is not None else "its exit code is not known"
        if code == 137:
            text += " (killed: from outside, or out of memory)"
        return f"{text}; it said: {said}" if said else text

    def _exit_code(self, timeout_s: float) -> int | None:
        try:
            self._exit.raw.connection.sock.settimeout(timeout_s)
            return int(json.loads(self._exit.content)["StatusCode"])
        except (ValueError, KeyError, AttributeError, OSError):
            return None

    def close(self) -> None:
        """Hang up; the runner reads the end of the stream and exits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for item in (self._exit, getattr(self._attached, "_response", None), self._attached, self._socket):
            if item is not None:
                with contextlib.suppress(OSError):
                    item.close()
