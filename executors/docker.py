"""Running code blocks in a hardened Docker container."""

from __future__ import annotations

import posixpath
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from autogen_core import Component, ComponentModel
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.executors.executor import WORKSPACE, SandboxCodeExecutor
from autogen_codeact.executors.functions_module import (
    FUNCTION_PROMPT_TEMPLATE,
    CodeFunction,
    build_functions_source,
    check_module_name,
    functions_prompt,
    required_packages,
)
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.executors.tools.policies import loaded
from autogen_codeact.sandbox.backends.docker.image import DEFAULT_IMAGE, Progress
from autogen_codeact.sandbox.backends.docker.launcher import ContainerOptions, DockerLauncher
from autogen_codeact.sandbox.backends.seccomp import docker_profile
from autogen_codeact.sandbox.egress.gateway import SETTINGS
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.host import environment as variables
from autogen_codeact.sandbox.host.client import RunnerClient, RunnerSettings
from autogen_codeact.sandbox.host.languages import LANGUAGES, labels, merge
from autogen_codeact.sandbox.limits import (
    CheckpointMode,
    Limits,
    parse_checkpoint,
    parse_names,
    parse_seconds,
    parse_size,
)
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.limits import ToolLimits

if TYPE_CHECKING:
    from docker.types import DeviceRequest

    from autogen_codeact.executors.pool import SandboxPool

NOBODY = "65534:65534"
MOST_BLOCKS = 32
PIDS_PER_BLOCK = 8
_SWITCHES = ("", "on", "off", "true", "false", "yes", "no", "enabled", "disabled")


class DockerCommandLineCodeExecutorConfig(BaseModel):
    """Configuration of `DockerCommandLineCodeExecutor`; every key is the constructor's argument of that name.

    `functions` are kept as the source of their module (`functions_source`) and the packages it needs.
    """

    model_config = ConfigDict(extra="forbid")

    image: str = DEFAULT_IMAGE
    container_name: str | None = None
    timeout: float = 60
    work_dir: str | None = None
    bind_dir: str | None = None
    auto_remove: bool = True
    stop_container: bool = True
    device_requests: list[dict[str, Any]] = Field(default_factory=list)
    functions_source: str | None = None
    functions_packages: list[str] = Field(default_factory=list)
    functions_module: str = "functions"
    extra_volumes: dict[str, dict[str, str]] = Field(default_factory=dict)
    extra_hosts: dict[str, str] = Field(default_factory=dict)
    init_command: str | None = None
    delete_tmp_files: bool = False
    mode: Literal["process", "session"] = "process"
    limits: Limits = Limits()
    user: str | None = None
    network: str = "none"
    read_only: bool = True
    seccomp: str = "default"
    environment: dict[str, str] = Field(default_factory=dict)
    preload: list[str] = Field(default_factory=list)
    packages: list[str] = Field(default_factory=list)
    languages: dict[str, str | list[str]] = Field(default_factory=dict)
    split_streams: bool = False
    checkpoint: CheckpointMode = True
    allow_domains: list[str] = Field(default_factory=list)
    tools: list[ComponentModel] = Field(default_factory=list)
    tool_limits: ToolLimits | None = None
    approve_tool: ComponentModel | None = None
    write_back: list[str] = Field(default_factory=list)
    docker_host: str | None = None
    lease: float = Field(default=60, gt=0)


class DockerCommandLineCodeExecutor(SandboxCodeExecutor, Component[DockerCommandLineCodeExecutorConfig]):
    """Runs code blocks in a hardened Docker container, over one attached stream.

    Without further settings: no network, no capabilities, no new privileges, an unprivileged user, a read-only root file
    system, bounded memory, processor time, processes and files. Use it with `async with`, or with `start` and `stop`;
    where it has not been started, the first block starts it.

    Args:
        image: Image to run; any with Python 3.8 or later. By default the one that `codeact image build` makes, or
            `python:3-slim` where that is missing and a registry answers.
        container_name: Name of the container. By default a new one each time.
        timeout: Wall-clock seconds that a block may take. Default 60.
        work_dir: Folder on the host whose files are exchanged with /workspace: its files are sent before a block, and
            new and changed files are copied back after it. By default a temporary one, removed by `stop`.
        bind_dir: Folder on the engine's host that is mounted at /workspace instead of copying. Off by default.
        auto_remove: Whether the container is removed when it ends. Default True.
        stop_container: Whether `stop` ends the container. If False it lives on for the next `start` of this executor, at the
            longest until this process ends. Default True.
        device_requests: GPUs and the like, as `docker.types.DeviceRequest`.
        functions: Functions whose source is put into a module for the code; their packages go into a derived image.
        functions_module: Name of that module. Default "functions".
        extra_volumes: Further mounts, as Docker's SDK has them.
        extra_hosts: Names for the container's /etc/hosts.
        init_command: Shell command that runs once when the container has started.
        delete_tmp_files: Whether the code of blocks without a name is not kept in `work_dir`. Default False.
        mode: "process", each block a fresh process (the default), or "session", one interpreter that lives on.
        limits: What the container may use; see `Limits`.
        user: "uid:gid" in the container. By default the owner of `bind_dir`, or 65534:65534 (nobody).
        network: Docker network: "none" (the default), "bridge", or the name of one of your own.
        read_only: Whether the root file system is read-only. Default True.
        seccomp: System calls that the code may make: "default" for this package's list (docs/security.md), "engine" for the
            engine's own, or the path of a profile in Docker's format.
        environment: Variables for the code: a mapping, where "${NAME}" refers to the host's variable, or a list of names of
            the host's variables. The config holds references only, never values.
        preload: Modules imported ahead of the first block, so that blocks that import them start at once.
        packages: Python packages for a derived image, built once. Paths of wheels are allowed.
        languages: Further languages: label to command, for example {"julia": "julia"}.
        split_streams: Whether `stdout` and `stderr` of the result are kept apart, at the price of their order.
        checkpoint: Whether a session is checkpointed before each block, so that a timeout or crash does not cost its
            variables. "adaptive" takes fewer of a large heap, whose copies cost time: at most about a tenth of the time that
            blocks run, and a failure may then cost what several blocks did. Default True.
        allow_domains: Hosts that the code may reach although the sandbox has no network, such as "api.example.com" or
            "*.example.org:443"; docs/network.md. Default none.
        docker_host: Address of the engine. By default DOCKER_HOST, else the current Docker context.
        tools: What the code can call in this process: typed functions, AutoGen tools, workbenches (docs/tools.md).
        tool_limits: How much of them a block may use; see `ToolLimits`.
        approve_tool: Asked before each call to a tool, a function or a policy such as `AskPerson()`; a call is made only on a
            yes.
        lease: Seconds after which a sandbox that is reached over a network ends itself when it hears nothing of this process.
            Default 60.
        progress: Called with a line for each step that takes long, such as a pull; by default it goes to standard error.
        write_back: Names that are left out by default when files are written back to `work_dir`, because programs on the host
            act on them automatically, such as ".git" (docs/executors.md), or patterns of such names. With `bind_dir` existing
            entries with other such names are mounted read-only.
        pool: A `SandboxPool` of the same options: the start takes one of its sandboxes. The config does not hold it.

    Raises:
        ValueError: An argument can't be right; the message says which.
    """

    component_config_schema = DockerCommandLineCodeExecutorConfig
    component_provider_override = "autogen_codeact.executors.DockerCommandLineCodeExecutor"

    SUPPORTED_LANGUAGES: ClassVar[list[str]] = sorted(labels(LANGUAGES))
    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE

    def __init__(
        self,
        image: str = DEFAULT_IMAGE,
        container_name: str | None = None,
        *,
        timeout: float = 60,
        work_dir: Path | str | None = None,
        bind_dir: Path | str | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        device_requests: Sequence[DeviceRequest] | None = None,
        functions: Sequence[CodeFunction] = (),
        functions_module: str = "functions",
        extra_volumes: Mapping[str, Mapping[str, str]] | None = None,
        extra_hosts: Mapping[str, str] | None = None,
        init_command: str | None = None,
        delete_tmp_files: bool = False,
        mode: Literal["process", "session"] = "process",
        limits: Limits | None = None,
        user: str | None = None,
        network: str = "none",
        read_only: bool = True,
        seccomp: str = "default",
        environment: Mapping[str, str] | Sequence[str] | None = None,
        preload: Sequence[str] = (),
        packages: Sequence[str] = (),
        languages: Mapping[str, str | Sequence[str]] | None = None,
        split_streams: bool = False,
        checkpoint: CheckpointMode = True,
        allow_domains: Sequence[str] = (),
        tools: Sequence[ToolLike] = (),
        tool_limits: ToolLimits | None = None,
        approve_tool: ApproveTool | None = None,
        docker_host: str | None = None,
        lease: float = 60,
        progress: Progress | None = None,
        write_back: Sequence[str] = (),
        pool: SandboxPool | None = None,
    ) -> None:
        _check_network(network)
        if allow_domains and network != "none":
            raise ValueError(f"allow_domains= is for a sandbox without a network, and network={network!r} gives it one")
        self._functions_packages = required_packages(functions)
        self._functions = tuple(functions)
        super().__init__(
            timeout=timeout,
            mode=mode,
            work_dir=Path(work_dir) if work_dir is not None else None,
            mounted=Path(bind_dir) if bind_dir is not None else None,
            languages=merge(languages),
            split_streams=split_streams,
            delete_tmp_files=delete_tmp_files,
            init_command=init_command,
            functions_source=build_functions_source(functions) if functions else None,
            functions_module=check_module_name(functions_module),
            allow_domains=allow_domains,
            tools=tools,
            tool_limits=tool_limits,
            approve_tool=approve_tool,
            pool=pool,
            limits=limits,
            write_back=write_back,
        )
        self._image = image
        self._container_name = container_name
        self._auto_remove = auto_remove
        self._stop_container = stop_container
        self._device_requests = tuple(device_requests or ())
        self._extra_volumes = {host: dict(mount) for host, mount in (extra_volumes or {}).items()}
        self._extra_hosts = dict(extra_hosts or {})
        self._user = user
        self._network = network
        self._read_only = read_only
        self._seccomp = seccomp
        self._environment = variables.parse_environment(environment)
        self._preload = parse_names("preload", preload)
        self._packages = parse_names("packages", packages)
        self._custom_languages = {
            name: command if isinstance(command, str) else list(command) for name, command in (languages or {}).items()
        }
        self._checkpoint = parse_checkpoint(checkpoint)
        self._docker_host = docker_host
        self._lease = parse_seconds("lease", lease)
        self._progress = progress if progress is not None else _say
        self._running_name: str | None = None
        if pool is not None:
            pool.check(self)

    @property
    def container_name(self) -> str | None:
        """Name of the container that runs now, or the one asked for."""
        return self._running_name or self._container_name

    @property
    def bind_dir(self) -> Path:
        """The folder mounted at /workspace, or `work_dir`, which is kept in step with it."""
        return self._mounted if self._mounted is not None else self.work_dir

    def functions_prompt(self) -> str:
        """Text that tells a model which functions its code can import; empty where there are none."""
        return functions_prompt(self._functions, self._functions_module) if self._functions else ""

    async def stop(self) -> None:
        """Stop the container and everything in it; repeated calls, also before `start`, are harmless.

        With `stop_container=False` the container lives on for the next `start` of this executor.
        """
        if self._stop_container:
            await super().stop()
        else:
            self._stopped = True
            await self._tools.stop()

    def _new_sandbox(self) -> RunnerClient:
        gateway = self._new_gateway()
        name = self._container_name or f"codeact-{uuid.uuid4().hex[:12]}"
        options = ContainerOptions(
            image=self._image,
            packages=(*self._packages, *self._functions_packages),
            name=name,
            limits=self._limits,
            user=self._effective_user(),
            network=self._network,
            read_only=self._read_only,
            seccomp=docker_profile(self._seccomp),
            bind_dir=str(self._mounted.resolve()) if self._mounted is not None else None,
            write_back=self._write_back,
            volumes=self._extra_volumes,
            extra_hosts=self._extra_hosts,
            device_requests=self._device_requests,
            auto_remove=self._auto_remove,
            docker_host=self._docker_host,
        )
        settings = RunnerSettings(
            mode=self._mode,
            workspace=WORKSPACE,
            preload=self._preload,
            output_limit=self._limits.output,
            split_streams=self._split_streams,
            checkpoint=self._checkpoint,
            proxy=SETTINGS if gateway is not None else None,
            tools=self.tool_settings(),
            memory_bytes=parse_size(self._limits.memory),
            rlimits={"NOFILE": self._limits.nofile},
            concurrency=min(MOST_BLOCKS, max(1, self._limits.pids // PIDS_PER_BLOCK)),
            lease_s=self._lease,
            own_shm=not any(_covers_shm(mount.get("bind", "")) for mount in self._extra_volumes.values()),
            environment=variables.resolve(self._environment),
        )
        return RunnerClient(DockerLauncher(options, self._progress), settings, name, gateway=gateway)

    def _opening(self) -> str | None:
        if self._network != "none":
            return (
                f"its sandbox has a network (network={self._network!r}), which its {{blocks}} could use if they were run again; "
                "give the agent an executor with allow_domains instead to have it rebuilt"
            )
        if any("ro" not in mount.get("mode", "rw").split(",") for mount in self._extra_volumes.values()):
            return (
                "folders of the host are mounted in its sandbox (extra_volumes), which its {blocks} could change if they were "
                'run again; mount them with mode "ro" to have it rebuilt'
            )
        return super()._opening()

    def _moved_into(self, sandbox: RunnerClient) -> None:
        self._running_name = sandbox.name

    def _effective_user(self) -> str:
        if self._user is not None:
            return self._user
        if self._mounted is not None and self._mounted.is_dir():
            owner = self._mounted.stat()
            if owner.st_uid != 0:
                return f"{owner.st_uid}:{owner.st_gid}"
        return NOBODY

    def _to_config(self) -> DockerCommandLineCodeExecutorConfig:
        return DockerCommandLineCodeExecutorConfig(
            image=self._image,
            container_name=self._container_name,
            timeout=self._timeout,
            work_dir=str(self._work_dir) if self._work_dir is not None else None,
            bind_dir=str(self._mounted) if self._mounted is not None else None,
            auto_remove=self._auto_remove,
            stop_container=self._stop_container,
            device_requests=[_dump_device(request) for request in self._device_requests],
            functions_source=self._functions_source,
            functions_packages=self._functions_packages,
            functions_module=self._functions_module,
            extra_volumes=self._extra_volumes,
            extra_hosts=self._extra_hosts,
            init_command=self._init_command,
            delete_tmp_files=self._delete_tmp_files,
            mode="session" if self._mode == "session" else "process",
            limits=self._limits,
            user=self._user,
            network=self._network,
            read_only=self._read_only,
            seccomp=self._seccomp,
            environment=variables.dump(self._environment),
            preload=list(self._preload),
            packages=list(self._packages),
            languages=self._custom_languages,
            split_streams=self._split_streams,
            checkpoint=self._checkpoint,
            allow_domains=list(self._allow_domains),
            **self._tools.dump(),
            write_back=list(self._write_back.allowed),
            docker_host=self._docker_host,
            lease=self._lease,
        )

    @classmethod
    def _from_config(cls, config: DockerCommandLineCodeExecutorConfig) -> Self:
        arguments = {name: getattr(config, name) for name in type(config).model_fields}
        source, packages = arguments.pop("functions_source"), arguments.pop("functions_packages")
        arguments["device_requests"] = [_load_device(request) for request in config.device_requests]
        arguments |= loaded(config.tools, config.approve_tool)
        executor = cls(**arguments)
        # The functions themselves are not rebuilt: loading a config must not run code on the host.
        executor._functions_source = source
        executor._functions_packages = packages
        return executor


def _check_network(network: object) -> None:
    """Refuse values meant as a switch: the engine would look for a network of that name when the sandbox starts."""
    if not isinstance(network, str) or network.strip().lower() in _SWITCHES:
        raise ValueError(
            f"network={network!r} is not a Docker network: give 'none', 'bridge' (which reaches the internet), "
            "or the name of one of your own"
        )


def _covers_shm(place: str) -> bool:
    """Whether a mount is visible in /dev/shm: its files belong to the host and must not be removed."""
    mounted = posixpath.join("/", posixpath.normpath(place))
    return posixpath.commonpath(["/dev/shm", mounted]) in ("/dev/shm", mounted)  # noqa: S108 - a path in the sandbox


def _say(line: str) -> None:
    sys.stderr.write(f"codeact: {printable(line)}\n")


def _dump_device(request: DeviceRequest) -> dict[str, Any]:
    return {
        "driver": request.driver,
        "count": request.count,
        "device_ids": list(request.device_ids),
        "capabilities": [list(group) for group in request.capabilities],
        "options": dict(request.options),
    }


def _load_device(request: dict[str, Any]) -> DeviceRequest:
    from docker.types import DeviceRequest  # noqa: PLC0415 - importing it takes a tenth of a second

    return DeviceRequest(**request)
