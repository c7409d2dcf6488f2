"""The options by name, for type checkers and editors, which see no generated names; `options.py` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from codeact_sandbox.types.limits import Limits, ToolLimits
from codeact_sandbox.types.secrets import Secret


class LimitKeywords(TypedDict, total=False):
    memory: str | int | None
    cpus: float
    pids: int
    nofile: int
    workspace: str | int
    tmp: str | int
    files: int
    output: int
    cpu_seconds: float | None


class CommonKeywords(LimitKeywords, total=False):
    """The fields of `SandboxOptions`, and limits by name."""

    timeout: float
    work_dir: Path | str | None
    bind_dir: Path | str | None
    data: Sequence[Path | str]
    skills: Sequence[Path | str]
    snapshot: Path | str | None
    mode: Literal["process", "session"]
    limits: Limits
    environment: Mapping[str, str] | Sequence[str] | None
    secrets: Mapping[str, Secret] | None
    preload: Sequence[str]
    checkpoint: bool
    allow_domains: Sequence[str]
    allow_pip: bool
    tool_limits: ToolLimits | None
    exclude: Sequence[str]
    include: Sequence[str]
    write_back: Sequence[str]


class DockerKeywords(CommonKeywords, total=False):
    """The fields of `DockerOptions`, without those that executors take by position."""

    device_requests: Sequence[Mapping[str, Any]] | None
    extra_volumes: Mapping[str, Mapping[str, str]] | None
    user: str | None
    network: str
    seccomp: str
    runtime: str | None
    packages: Sequence[str]
    docker_host: str | None


class ContainerKeywords(DockerKeywords, total=False):
    """The fields of `DockerOptions`."""

    image: str
    container_name: str | None


class BubblewrapKeywords(CommonKeywords, total=False):
    """The fields of `BubblewrapOptions`."""

    python: str | None
    readable: Sequence[Path | str]


class SandboxKeywords(ContainerKeywords, BubblewrapKeywords, total=False):
    """The options of any sandbox."""
