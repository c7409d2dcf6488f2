"""Running code blocks in bubblewrap namespaces: the same sandbox without a daemon."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from autogen_core import Component, ComponentModel
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.executors.executor import WORKSPACE, SandboxCodeExecutor
from autogen_codeact.executors.functions_module import (
    CodeFunction,
    build_functions_source,
    check_module_name,
    required_packages,
)
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.executors.tools.policies import loaded
from autogen_codeact.sandbox.backends.bubblewrap.launcher import BubblewrapLauncher, BubblewrapOptions
from autogen_codeact.sandbox.backends.bubblewrap.mounts import check_readable
from autogen_codeact.sandbox.egress.gateway import SETTINGS
from autogen_codeact.sandbox.host import environment as variables
from autogen_codeact.sandbox.host.client import RunnerClient, RunnerSettings
from autogen_codeact.sandbox.host.languages import merge
from autogen_codeact.sandbox.limits import CheckpointMode, Limits, parse_checkpoint, parse_names, parse_size
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.limits import ToolLimits

if TYPE_CHECKING:
    from autogen_codeact.executors.pool import SandboxPool


class BubblewrapCommandLineCodeExecutorConfig(BaseModel):
    """Configuration of `BubblewrapCommandLineCodeExecutor`; every key is the constructor's argument of that name.

    `functions` are kept as the source of their module (`functions_source`).
    """

    model_config = ConfigDict(extra="forbid")

    timeout: float = 60
    work_dir: str | None = None
    bind_dir: str | None = None
    functions_source: str | None = None
    functions_module: str = "functions"
    init_command: str | None = None
    delete_tmp_files: bool = False
    mode: Literal["process", "session"] = "process"
    limits: Limits = Limits()
    environment: dict[str, str] = Field(default_factory=dict)
    preload: list[str] = Field(default_factory=list)
    languages: dict[str, str | list[str]] = Field(default_factory=dict)
    split_streams: bool = False
    checkpoint: CheckpointMode = True
    allow_domains: list[str] = Field(default_factory=list)
    tools: list[ComponentModel] = Field(default_factory=list)
    tool_limits: ToolLimits | None = None
    approve_tool: ComponentModel | None = None
    write_back: list[str] = Field(default_factory=list)
    python: str | None = None
    readable: list[str] = Field(default_factory=list)


class BubblewrapCommandLineCodeExecutor(SandboxCodeExecutor, Component[BubblewrapCommandLineCodeExecutorConfig]):
    """Runs code blocks in bubblewrap namespaces, with the programs of this machine and none of its data.

    No network, no capabilities, no new privileges, an unprivileged user, system folders read-only, no home directory,
    nothing of the host's environment. Memory and processor time are bounded by a control group where the kernel lets this
    process make one; elsewhere only the address space of each process is. Linux only.

    Args:
        timeout: Wall-clock seconds that a block may take. Default 60.
        work_dir: Folder on the host whose files are exchanged with /workspace. By default a temporary one.
        bind_dir: Folder on the host that is mounted at /workspace instead of copying. Off by default.
        functions: Functions whose source is put into a module for the code; what packages they need must be there.
        functions_module: Name of that module. Default "functions".
        init_command: Shell command that runs once when the sandbox has started.
        delete_tmp_files: Whether the code of blocks without a name is not kept in `work_dir`. Default False.
        mode: "process" (the default) or "session".
        limits: What the sandbox may use.
        environment: Variables for the code, as for Docker; the host's own are not passed on.
        preload: Modules imported ahead of the first block.
        languages: Further languages: label to command.
        split_streams: Whether `stdout` and `stderr` of the result are kept apart.
        checkpoint: Whether a session is checkpointed before each block, so that a timeout or crash does not cost its
            variables. "adaptive" takes fewer of a large heap, whose copies cost time: at most about a tenth of the time that
            blocks run, and a failure may then cost what several blocks did. Default True.
        allow_domains: Hosts that the code may reach, as for Docker. Default none.
        tools: What the code can call in this process: typed functions, AutoGen tools, workbenches (docs/tools.md).
        tool_limits: How much of them a block may use; see `ToolLimits`.
        approve_tool: Asked before each call to a tool, a function or a policy such as `AskPerson()`; a call is made only on a
            yes.
        python: The interpreter. By default the running one with what is installed for it, if the sandbox's user can reach
            it, else the system's.
        readable: Further folders of the host that the code can read.
        write_back: Names that are left out by default when files are written back to `work_dir`, because programs on the host
            act on them automatically, such as ".git" (docs/executors.md), or patterns of such names. With `bind_dir` existing
            entries with other such names are mounted read-only.
        pool: A `SandboxPool` of the same options: the start takes one of its sandboxes. The config does not hold it.

    Raises:
        ValueError: An argument can't be right; the message says which.
    """

    component_config_schema = BubblewrapCommandLineCodeExecutorConfig
    component_provider_override = "autogen_codeact.executors.BubblewrapCommandLineCodeExecutor"

    def __init__(
        self,
        *,
        timeout: float = 60,
        work_dir: Path | str | None = None,
        bind_dir: Path | str | None = None,
        functions: Sequence[CodeFunction] = (),
        functions_module: str = "functions",
        init_command: str | None = None,
        delete_tmp_files: bool = False,
        mode: Literal["process", "session"] = "process",
        limits: Limits | None = None,
        environment: Mapping[str, str] | Sequence[str] | None = None,
        preload: Sequence[str] = (),
        languages: Mapping[str, str | Sequence[str]] | None = None,
        split_streams: bool = False,
        checkpoint: CheckpointMode = True,
        allow_domains: Sequence[str] = (),
        tools: Sequence[ToolLike] = (),
        tool_limits: ToolLimits | None = None,
        approve_tool: ApproveTool | None = None,
        python: str | None = None,
        readable: Sequence[Path | str] = (),
        write_back: Sequence[str] = (),
        pool: SandboxPool | None = None,
    ) -> None:
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
        if packages := required_packages(functions):
            needed = (
                f"they need {', '.join(packages)}: install that for the Python that the sandbox runs, or use Docker"
            )
            self._functions_failed = f"{self._functions_failed}; {needed}"
        self._environment = variables.parse_environment(environment)
        self._preload = parse_names("preload", preload)
        self._custom_languages = {
            name: command if isinstance(command, str) else list(command) for name, command in (languages or {}).items()
        }
        self._checkpoint = parse_checkpoint(checkpoint)
        self._python = python
        self._readable = tuple(check_readable(Path(folder)) for folder in readable)
        if pool is not None:
            pool.check(self)

    def _new_sandbox(self) -> RunnerClient:
        gateway = self._new_gateway()
        name = f"codeact-{uuid.uuid4().hex[:12]}"
        limits = self._limits
        options = BubblewrapOptions(
            name=name,
            limits=limits,
            python=self._python,
            readable=self._readable,
            bind_dir=self._mounted.resolve() if self._mounted is not None else None,
            write_back=self._write_back,
        )
        settings = RunnerSettings(
            mode=self._mode,
            workspace=WORKSPACE,
            preload=self._preload,
            output_limit=limits.output,
            split_streams=self._split_streams,
            checkpoint=self._checkpoint,
            proxy=SETTINGS if gateway is not None else None,
            tools=self.tool_settings(),
            memory_bytes=parse_size(limits.memory),
            # There is no engine here to set them.
            rlimits={"NOFILE": limits.nofile, "NPROC": limits.pids, "CORE": 0},
            rlimit_without_cgroup={"AS": parse_size(limits.memory)},
            own_shm=True,
            environment=variables.resolve(self._environment),
        )
        return RunnerClient(BubblewrapLauncher(options), settings, name, gateway=gateway)

    def _to_config(self) -> BubblewrapCommandLineCodeExecutorConfig:
        return BubblewrapCommandLineCodeExecutorConfig(
            timeout=self._timeout,
            work_dir=str(self._work_dir) if self._work_dir is not None else None,
            bind_dir=str(self._mounted) if self._mounted is not None else None,
            functions_source=self._functions_source,
            functions_module=self._functions_module,
            init_command=self._init_command,
            delete_tmp_files=self._delete_tmp_files,
            mode="session" if self._mode == "session" else "process",
            limits=self._limits,
            environment=variables.dump(self._environment),
            preload=list(self._preload),
            languages=self._custom_languages,
            split_streams=self._split_streams,
            checkpoint=self._checkpoint,
            allow_domains=list(self._allow_domains),
            **self._tools.dump(),
            write_back=list(self._write_back.allowed),
            python=self._python,
            readable=[str(folder) for folder in self._readable],
        )

    @classmethod
    def _from_config(cls, config: BubblewrapCommandLineCodeExecutorConfig) -> Self:
        arguments: dict[str, Any] = {name: getattr(config, name) for name in type(config).model_fields}
        source = arguments.pop("functions_source")
        arguments |= loaded(config.tools, config.approve_tool)
        executor = cls(**arguments)
        # The functions themselves are not rebuilt: loading a config must not run code on the host.
        executor._functions_source = source
        return executor
