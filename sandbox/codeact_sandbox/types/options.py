"""Options of a sandbox: the one place where an option's name, type, default and meaning are written down.

Executors, pools, `Sandbox`, `AsyncSandbox`, the command line and component configs take their options from these models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Unpack, cast

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from codeact_sandbox.types import environment as variables
from codeact_sandbox.types import version
from codeact_sandbox.types.allowed_domains import Policy
from codeact_sandbox.types.environment import EnvironmentValue
from codeact_sandbox.types.host_paths import check_readable, parse_data, parse_path
from codeact_sandbox.types.keyword_model import KeywordModel
from codeact_sandbox.types.limits import (
    Limits,
    ToolLimits,
    parse_names,
    parse_timeout,
)
from codeact_sandbox.types.paths import DATA, SKILLS
from codeact_sandbox.types.protected_names import ProtectedNames
from codeact_sandbox.types.secrets import Secret, dump_secrets, parse_secrets
from codeact_sandbox.types.skills import parse_skills

if TYPE_CHECKING:
    from codeact_sandbox.types.option_types import BubblewrapKeywords, ContainerKeywords

Mode = Literal["process", "session"]
BackendName = Literal["auto", "docker", "bubblewrap"]
_SWITCHES = ("", "on", "off", "true", "false", "yes", "no", "enabled", "disabled")
DEFAULT_IMAGE = version.DEFAULT_IMAGE
WRONG_LIMITS = (
    "limits must be Limits(memory='512m', ...), not {!r}; each limit is also an option by its name: memory='512m'"
)


def _check_mode(value: object) -> object:
    if value not in ("process", "session"):
        raise ValueError(f"mode must be 'process' or 'session', not {value!r}")
    return value


def _check_limits(value: object) -> object:
    if value is None:
        return Limits()
    if not isinstance(value, Limits | dict):  # only a config has a mapping: `parse_options` refuses it from callers
        raise TypeError(WRONG_LIMITS.format(value))
    return value


def _check_network(value: object) -> object:
    """Refuse values meant as a switch: the engine would look for a network of that name when the sandbox starts."""
    if not isinstance(value, str) or value.strip().lower() in _SWITCHES:
        raise ValueError(
            f"network={value!r} is not a Docker network: give 'none', 'bridge' (which reaches the internet), "
            "or the name of one of your own"
        )
    return value


def _check_domains(value: Any) -> list[str]:
    Policy(value)
    return list(value)


def _parse_environment(value: Any) -> dict[str, EnvironmentValue]:
    if isinstance(value, Mapping) and any(isinstance(each, EnvironmentValue) for each in value.values()):
        return dict(value)
    return variables.parse_environment(value)


def _parse_device(request: Any) -> dict[str, Any]:
    """Return a `docker.types.DeviceRequest` as the arguments that make it."""
    if not hasattr(request, "device_ids"):
        return dict(request)
    return {
        "driver": request.driver,
        "count": request.count,
        "device_ids": list(request.device_ids),
        "capabilities": [list(group) for group in request.capabilities],
        "options": dict(request.options),
    }


def _parse_readable(value: Any) -> list[str]:
    return [str(check_readable(Path(parse_path("readable", folder)))) for folder in parse_names("readable", value)]


def _names(option: str) -> PlainValidator:
    return PlainValidator(lambda value: list(parse_names(option, value)))


def _parse_folder(value: object, info: ValidationInfo) -> str | None:
    return None if value is None else parse_path(str(info.field_name), value)


Folder = Annotated[Path | str | None, BeforeValidator(_parse_folder)]
Environment = Annotated[
    Mapping[str, str] | Sequence[str] | None, PlainValidator(_parse_environment), PlainSerializer(variables.dump)
]
_HIDDEN = Field(repr=False)
OrEmpty = BeforeValidator(lambda value: {} if value is None else value)


@dataclass(frozen=True)
class AutoGenOptions:
    """What AutoGen's executors have in addition to the options of a sandbox, with its names and meanings."""

    functions_source: str | None = None  # source of a module that the code can import
    functions_packages: Sequence[str] = ()  # packages that this module needs
    functions_module: str = "functions"  # name of this module
    init_command: str | None = None  # shell command that runs once when the sandbox has started
    delete_tmp_files: bool = False  # whether the code of blocks without a name is not kept in `work_dir`
    auto_remove: bool = True  # whether the container is removed when it ends
    stop_container: bool = True  # whether `stop` ends the container
    extra_hosts: Mapping[str, str] | None = None  # names for the container's /etc/hosts


class SandboxOptions(KeywordModel):
    """Options that every kind of sandbox has; the fields of `limits` can also be given by their own names."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    # Name of the backend: `docker` or `bubblewrap`.
    backend: ClassVar[Literal["docker", "bubblewrap"]]
    # Options that do not shape the sandbox itself: they may differ between a pool and those who use its sandboxes.
    per_run: ClassVar[Set[str]] = {
        *("timeout", "work_dir", "snapshot", "exclude", "include", "write_back", "tool_limits"),
    }

    timeout: Annotated[float, BeforeValidator(parse_timeout), "Wall-clock seconds that a block may take."] = 60
    work_dir: Annotated[
        Folder,
        "Folder on the host whose files are exchanged with /workspace: its files are sent before a block, and "
        "new and changed files are copied back after it. By default a temporary one, removed by `stop`.",
    ] = None
    bind_dir: Annotated[
        Folder, "Folder on the (engine's) host that is mounted at /workspace instead of copying. By default none."
    ] = None
    data: Annotated[
        Sequence[Path | str],
        PlainValidator(parse_data),
        "Files and folders of the host that the code can read in /data, and not write: mounted, or sent to an "
        "engine on another machine (docs/data-and-packages.md).",
    ] = ()
    skills: Annotated[
        Sequence[Path | str],
        PlainValidator(parse_skills),
        "Folders of Agent Skills, or folders that have such folders in them: the code can read them in /skills, "
        "and agents know their descriptions (docs/skills.md).",
    ] = ()
    snapshot: Annotated[
        Folder,
        "File that `snapshot()` of a sandbox has written: the workspace begins with what is in it. Not together "
        "with `work_dir` or `bind_dir`. By default none.",
    ] = None
    mode: Annotated[
        Mode,
        BeforeValidator(_check_mode),
        '"process": each block is a new process. "session": one interpreter runs all blocks.',
    ] = "process"
    limits: Annotated[Limits, BeforeValidator(_check_limits), "What the sandbox may use; see `Limits`."] = Limits()
    environment: Annotated[
        Environment,
        'Variables for the code: a mapping, where "${NAME}" refers to the host\'s variable, or a list of names '
        "of the host's variables. A config contains references only, never values.",
        _HIDDEN,
    ] = None
    secrets: Annotated[
        Mapping[str, Secret] | None,
        PlainValidator(parse_secrets),
        PlainSerializer(dump_secrets),
        "Values of the host that the code can use in requests to some hosts, and never sees: variables for the code, each with "
        "a `Secret(env=..., hosts=[...])` (docs/secrets.md).",
    ] = None
    preload: Annotated[
        Sequence[str],
        _names("preload"),
        "Modules imported before the first block, so that blocks that import them start at once.",
    ] = ()
    checkpoint: Annotated[
        bool,
        "Whether a session is checkpointed before each block, so that a timeout or crash does not cost its variables.",
    ] = True
    allow_domains: Annotated[
        Sequence[str],
        PlainValidator(_check_domains),
        'Hosts that the code may reach although the sandbox has no network, such as "api.example.com" or '
        '"*.example.org:443"; docs/network.md.',
    ] = ()
    allow_pip: Annotated[
        bool,
        "Whether `pip install` works although the sandbox has no network: this machine serves it the packages "
        "that its own pip is configured for; docs/data-and-packages.md.",
    ] = False
    tool_limits: Annotated[
        ToolLimits | None, "How many calls to host tools a block may make, and how large; see `ToolLimits`."
    ] = None
    exclude: Annotated[
        Sequence[str],
        _names("exclude"),
        "Files and folders of `work_dir` that are not sent, as in a .gitignore, besides secrets, what tools make, and what "
        "a .gitignore in it names (docs/executors.md).",
    ] = ()
    include: Annotated[
        Sequence[str],
        _names("include"),
        'Files and folders of `work_dir` that are sent although they would be left out, such as ".env".',
    ] = ()
    write_back: Annotated[
        Sequence[str],
        PlainValidator(lambda value: list(ProtectedNames(value).allowed)),
        "Names that are left out by default when files are written back to `work_dir`, because programs on the "
        'host act on them automatically, such as ".git" (docs/executors.md), or patterns of such names. With `bind_dir` '
        "existing entries with other such names are mounted read-only.",
    ] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check_shown()
        if self.snapshot is not None and (self.work_dir is not None or self.bind_dir is not None):
            raise ValueError("snapshot= fills an empty workspace: leave out work_dir= and bind_dir=")
        if both := self.variables.keys() & (self.secrets or {}):
            raise ValueError(f"environment= and secrets= both set {min(both)}: leave it out of one of them")
        return self

    def check_shown(self) -> None:
        """Check that code can't move anything that it is shown."""
        bound = Path(os.path.realpath(self.bind_dir)) if self.bind_dir is not None else None
        for option in ("data", "skills", "readable") if bound is not None else ():
            for path in getattr(self, option, ()):
                folder, name = os.path.split(os.path.abspath(path))
                if bound in (*Path(os.path.realpath(folder), name).parents, *Path(os.path.realpath(path)).parents):
                    raise ValueError(
                        f"{option}={str(path)!r} is in bind_dir=, where code could replace it by a link to any folder of this "
                        "machine: leave it out, because the code can read it in its workspace"
                    )

    @model_validator(mode="before")
    @classmethod
    def _take_limits_by_name(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not (by_name := {k: values[k] for k in Limits.model_fields if k in values}):
            return values
        if "limits" in values:
            raise ValueError(f"{next(iter(by_name))}= is a limit, and limits= has all of them: give one of the two")
        return {**{name: value for name, value in values.items() if name not in by_name}, "limits": by_name}

    @classmethod
    def names(cls) -> set[str]:
        return {*cls.model_fields, *Limits.model_fields}

    @property
    def autogen(self) -> AutoGenOptions:
        return AutoGenOptions()

    @property
    def variables(self) -> dict[str, EnvironmentValue]:
        return cast(dict[str, EnvironmentValue], self.environment)

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in self.values().items() if name in self.model_fields_set}

    def shape(self) -> dict[str, Any]:
        """Return the options that shape the sandbox itself, by name; those who share a pool must agree on them."""
        return {name: value for name, value in self.values().items() if name not in self.per_run}


class DockerOptions(SandboxOptions):
    """Options of a Docker sandbox."""

    backend: ClassVar[Literal["docker", "bubblewrap"]] = "docker"

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[ContainerKeywords]) -> None: ...

    image: Annotated[
        str,
        "Image to run; any with Python 3.8 or later. By default the one that `codeact image build` makes, or "
        "`python:3-slim` if that is missing and a registry answers.",
    ] = DEFAULT_IMAGE
    container_name: Annotated[str | None, "Name of the container. By default a new one each time."] = None
    device_requests: Annotated[
        Sequence[Mapping[str, Any]] | None,
        PlainValidator(lambda value: [_parse_device(request) for request in value or ()]),
        "GPUs and similar devices, as `docker.types.DeviceRequest`.",
    ] = None
    extra_volumes: Annotated[Mapping[str, Mapping[str, str]] | None, OrEmpty, "Further mounts, as in Docker's SDK."] = (
        None
    )
    user: Annotated[
        str | None, '"uid:gid" in the container. By default the owner of `bind_dir`, or 65534:65534 (nobody).'
    ] = None
    network: Annotated[
        str, BeforeValidator(_check_network), 'Docker network: "none", "bridge", or the name of one of your own.'
    ] = "none"
    seccomp: Annotated[
        str,
        'System calls that the code may make: "default" for this package\'s list (docs/security.md), "engine" '
        "for the engine's own, or the path of a profile in Docker's format.",
    ] = "default"
    runtime: Annotated[
        str | None,
        'OCI runtime of the engine that runs the container, such as "runsc" (gVisor) or "crun" '
        "(docs/security.md). By default the engine's own, mostly runc.",
    ] = None
    packages: Annotated[
        Sequence[str],
        _names("packages"),
        "Python packages for a derived image, built once. Paths of wheels are allowed.",
    ] = ()
    docker_host: Annotated[
        str | None, "Address of the engine. By default DOCKER_HOST, else the current Docker context.", _HIDDEN
    ] = None

    @model_validator(mode="after")
    def _consistent_for_docker(self) -> Self:
        for option in ("allow_domains", "allow_pip", "secrets") if self.network != "none" else ():
            if getattr(self, option):
                raise ValueError(
                    f"{option}= is for a sandbox without a network, and network={self.network!r} gives it one"
                )
        for mount in (self.extra_volumes or {}).values():
            for folder, option in ((DATA, "data"), (SKILLS, "skills")):
                if getattr(self, option) and Path(mount.get("bind", "")).is_relative_to(folder):
                    raise ValueError(
                        f"extra_volumes= mounts {mount['bind']}, and {folder} is for {option}=: use another path"
                    )
        return self

    @property
    def all_packages(self) -> list[str]:
        """Return the packages of the image, those of the module of functions included."""
        return list(dict.fromkeys([*self.packages, *self.autogen.functions_packages]))

    def shape(self) -> dict[str, Any]:
        """Return the options that shape the sandbox itself, by name."""
        own = {"auto_remove": self.autogen.auto_remove, "extra_hosts": self.autogen.extra_hosts or {}}
        return {**super().shape(), "packages": set(self.all_packages), **own}


class BubblewrapOptions(SandboxOptions):
    """Options of a bubblewrap sandbox."""

    backend: ClassVar[Literal["docker", "bubblewrap"]] = "bubblewrap"

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[BubblewrapKeywords]) -> None: ...

    python: Annotated[
        str | None,
        "The interpreter. By default the running one with what is installed for it, if the sandbox's user can "
        "reach it, else the system's.",
    ] = None
    readable: Annotated[
        Sequence[Path | str], PlainValidator(_parse_readable), "Further folders of the host that the code can read."
    ] = ()

    @model_validator(mode="after")
    def _data_has_its_folder(self) -> Self:
        for folder in self.readable:
            for own, option in ((DATA, "data"), (SKILLS, "skills")):
                if getattr(self, option) and Path(os.path.abspath(folder)).is_relative_to(own):
                    raise ValueError(f"readable={str(folder)!r} is in {own}, which is for {option}=: give it there")
        return self


# The options of each backend, by its name.
OPTIONS: dict[str, type[DockerOptions] | type[BubblewrapOptions]] = {
    "docker": DockerOptions,
    "bubblewrap": BubblewrapOptions,
}
